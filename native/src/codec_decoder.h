// Codes to sound: 16 codes per 80 ms frame -> 1920 samples at 24 kHz, exactly and as they come.
//
// The decoder is causal and keeps its state, so frames may be handed over one at a time or many at
// once: the samples are the same bit for bit, and so are they for any number of threads. The
// weights are shared by any number of states; a workspace belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "codec_conv.h"
#include "codec_transformer.h"
#include "frame_cost.h"
#include "gguf.h"
#include "kernels.h"
#include "threads.h"

namespace qt {

// Everything that decoding remembers of one stream (about 5 MB); copying it takes a snapshot.
struct CodecState {
    WindowCache cache;         // of the transformer
    std::vector<float> conv;   // input rows that later convolutions still need
    std::vector<float> front;  // the same for pre_conv
};

class CodecDecoder {
  public:
    class Workspace {
      public:
        explicit Workspace(const CodecDecoder& decoder);

      private:
        friend class CodecDecoder;
        CodecConv::Workspace conv_;
        std::vector<float> first_, rest_, pre_, projected_, latent_, scratch_;
    };

    // Frames per inner step: more hide the cost of reading the weights, fewer keep the buffers in
    // the cache.
    static constexpr int kMaxStep = 4;

    // The file must stay open while the decoder lives.
    CodecDecoder(const Gguf& file, Pool& pool);

    int groups() const { return groups_; }  // codes per frame
    int codebook_size() const { return codebook_size_; }
    void add_cost(FrameCost& cost) const;
    int samples_per_frame() const { return samples_per_frame_; }
    int sample_rate() const { return sample_rate_; }

    CodecState new_state() const;
    std::unique_ptr<Workspace> new_workspace() const { return std::make_unique<Workspace>(*this); }

    // codes [frames, groups], each in [0, codebook_size), else an Error; audio [frames *
    // samples_per_frame], within [-1, 1].
    void decode(Pool& pool, CodecState& state, Workspace& work, const int32_t* codes, int frames,
                float* audio) const;

    // Takes `state` through frames [first, end) of a reference of `frames`, in order from a fresh
    // one: as decode() would, without the audio and without the convolutions of frames that no
    // sample behind the reference depends on.
    void prime(Pool& pool, CodecState& state, Workspace& work, const int32_t* codes, int frames,
               int first, int end) const;
    // So many frames of a reference are without convolutions.
    int unheard_frames(int frames) const;

  private:
    void load_codebooks(const Gguf& file);
    void check_codes(const int32_t* codes, int frames) const;
    // Up to kFrontStep frames -> work.latent [frames, latent].
    void front(Pool& pool, CodecState& state, Workspace& work, const int32_t* codes,
               int frames) const;

    int groups_ = 0, codebook_size_ = 0, codebook_dim_ = 0;
    int samples_per_frame_ = 0, sample_rate_ = 0;
    std::vector<const float*> codebooks_;  // groups_ tables [codebook_size, codebook_dim]
    std::vector<std::vector<float>> owned_codebooks_;  // those the file does not hold as f32
    int latent_ = 0;
    Layer first_proj_, rest_proj_, pre_conv_;
    std::unique_ptr<WindowTransformer> transformer_;
    std::unique_ptr<CodecConv> conv_;
};

}  // namespace qt
