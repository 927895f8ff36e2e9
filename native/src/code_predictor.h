// The code predictor (MODEL_SPEC 3): code 0 and the talker's hidden state in, codes 1..15 out.
// 16 positions with a fresh cache per frame; positions 0 and 1 go through together, so the weights
// are read 15 times.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "code_embedding.h"
#include "gguf.h"
#include "sampler.h"
#include "transformer.h"

namespace qt {

class CodePredictor {
  public:
    // One frame of one request.
    struct Frame {
        const float* hidden = nullptr;  // [talker hidden], after the talker's final norm
        std::span<int32_t> codes;       // [16]; code 0 is given
        // [16] or empty. Where there is one, all codes are given, and this is filled with what
        // would have been chosen after them: to compare two precisions.
        std::span<int32_t> would_choose = {};
        SampleRules rules;
        uint64_t seed = 0;
        uint32_t index = 0;   // of the frame, for the random numbers
        bool failed = false;  // set when its logits were no numbers
    };

    CodePredictor(Pool& pool, const Gguf& file, CodeEmbedding& embedding, Precision precision);

    // Frames of several requests share the reading of the weights; each result is what the frame
    // alone would give.
    void run(Pool& pool, std::span<Frame> frames);

    // Read once per frame: the layers 15 times, each head once.
    double weight_bytes() const;

  private:
    void project(Pool& pool, int rows);
    void choose_codes(Pool& pool, std::span<Frame> frames, int codebook, int row_step);

    CodeEmbedding& embedding_;
    Transformer transformer_;
    bool projects_ = false;  // 1.7B: talker width -> predictor width
    Packed projection_;
    std::vector<float> projection_bias_;
    std::vector<Packed> heads_;  // 15 of [codes, hidden]

    std::vector<KvCache> caches_;  // one per frame of a call
    std::vector<CacheRow> rows_;
    Quantised quantised_;
    std::vector<float> input_;    // [rows, talker hidden]
    std::vector<float> h_;        // [rows, hidden]
    std::vector<float> logits_;   // [frames, codes]
    std::vector<float> normed_;   // [frames, hidden]
    std::vector<float> scratch_;  // [workers, codes]
};

}  // namespace qt
