// The talker (MODEL_SPEC 2): rows of text and codes in, logits of the next code 0 and the hidden
// state for the code predictor out.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "gguf.h"
#include "talker_info.h"
#include "transformer.h"

namespace qt {

class Talker {
  public:
    // kv_size: positions a request may have.
    Talker(Pool& pool, const Gguf& file, const TalkerInfo& info, int kv_size, Precision precision);

    const TransformerShape& shape() const { return transformer_.shape(); }
    int hidden() const { return shape().hidden; }
    bool exact() const { return transformer_.exact(); }
    // Logits per row: the real codes, then eos. The other control codes can never be chosen, so
    // their rows of the head are not even loaded.
    int n_logits() const { return head_.n; }
    int eos_logit() const { return head_.n - 1; }
    KvCache new_cache(int capacity) const { return KvCache(shape(), capacity, !exact()); }

    // rows [ids, hidden] = fc2(silu(fc1(embedding[id]))): what a text token looks like as input.
    // Computed rows are kept: a token's row is always the same.
    void text_rows(Pool& pool, std::span<const int32_t> ids, float* rows);

    // Read once per frame.
    double weight_bytes() const {
        return transformer_.weight_bytes() + static_cast<double>(head_.data.bytes());
    }

    // h [rows, hidden]: input rows -> normed hidden states, in place.
    void forward(Pool& pool, float* h, const std::vector<CacheRow>& rows);
    // logits [rows, n_logits] of normed hidden states.
    void logits(Pool& pool, const float* hidden, int rows, float* logits);

  private:
    void compute_text_rows(Pool& pool, std::span<const int32_t> ids, float* rows);

    Transformer transformer_;
    const Tensor* text_embedding_;
    Packed fc1_;
    Packed fc2_;
    std::vector<float> fc1_bias_;
    std::vector<float> fc2_bias_;
    Packed head_;
    Quantised quantised_;
    std::unordered_map<int32_t, std::vector<float>> known_rows_;
};

}  // namespace qt
