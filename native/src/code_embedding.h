// The 16 tables that turn the codes of a frame into talker input: code 0 has the talker's own
// table (which also holds the control codes), codes 1..15 have the code predictor's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gguf.h"

namespace qt {

inline constexpr int kCodebooks = 16;

class CodeEmbedding {
  public:
    // width: the talker's hidden size; codec_vocab: rows of the talker's table (3072); codes: rows
    // of the others (2048).
    CodeEmbedding(const Gguf& file, int width, int codec_vocab, int codes);

    int width() const { return width_; }
    int codes() const { return codes_; }
    // row [width] += the embedding of `code`.
    void add(int codebook, int code, float* row);
    // row += c0, c1, ... c15, in this order.
    void add_frame(std::span<const int32_t> frame, float* row);

  private:
    int width_;
    int codes_;
    std::vector<const Tensor*> tables_;
    std::vector<float> scratch_;  // [width]
};

}  // namespace qt
