// Sound to codes: Mimi's encoder, 24 kHz mono -> 16 codes per 80 ms frame.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "breath.h"
#include "encoder_transformer.h"
#include "gguf.h"
#include "kernels.h"
#include "layers.h"
#include "threads.h"

namespace qt {

class CodecEncoder {
  public:
    // Reads tok_enc.* of a codec file, which must stay open while the encoder lives.
    CodecEncoder(const Gguf& file, Pool& pool);

    int groups() const { return groups_; }
    int samples_per_frame() const { return samples_per_frame_; }
    // Frames of a clip: the last one may be partly silence.
    int frames(int n_samples) const {
        return (n_samples + samples_per_frame_ - 1) / samples_per_frame_;
    }

    // audio [n_samples], at least one sample -> codes [frames(n_samples), groups()]
    std::vector<int32_t> operator()(Pool& pool, const float* audio, int n_samples,
                                    const Breath& breathe = no_breath) const;

  private:
    using Rows = std::vector<float>;  // [T, channels]

    // One rate of the convolutional part: x + conv1(elu(conv3(elu x))), elu, then a strided
    // convolution to the next.
    struct Stage {
        Layer narrow, widen, down;
    };
    struct Quantizer {
        Layer input;
        std::vector<const float*> books;  // [codebook_size, dim]
        std::vector<Rows> owned;          // of books that the file does not hold as f32
    };
    struct Past;

    void load_stages(const Gguf& file, Pool& pool);
    Quantizer load_quantizer(const Gguf& file, Pool& pool, const std::string& name,
                             int books) const;
    Rows convolve(Pool& pool, const float* audio, int n_samples, const Breath& breathe) const;
    void convolve_piece(Pool& pool, Past& past, const float* audio, int n_samples, Rows& out) const;
    Rows downsample(Pool& pool, const Rows& x) const;
    // x [n, hidden] -> codes[t * groups_ + first + book]
    void quantize(Pool& pool, const Quantizer& quantizer, const Rows& x, int n, int first,
                  int32_t* codes, const Breath& breathe) const;
    int nearest(const float* book, const float* x, const float* scores, float margin) const;

    int hidden_ = 0, groups_ = 0, codebook_size_ = 0, codebook_dim_ = 0;
    int samples_per_frame_ = 0, samples_per_row_ = 1;  // a row: one step of the transformer
    Layer first_, last_, down_;
    std::vector<Stage> stages_;
    std::unique_ptr<EncoderTransformer> transformer_;
    Quantizer semantic_, acoustic_;
};

}  // namespace qt
