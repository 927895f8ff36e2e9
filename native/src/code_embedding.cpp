#include "code_embedding.h"

#include "kernels.h"
#include "quant.h"

namespace qt {

CodeEmbedding::CodeEmbedding(const Gguf& file, int width, int codec_vocab, int codes)
    : width_(width), codes_(codes), scratch_(static_cast<size_t>(width)) {
    tables_.push_back(&file.tensor("talker.codec_embd.weight", {codec_vocab, width}));
    for (int i = 0; i + 1 < kCodebooks; ++i)
        tables_.push_back(
            &file.tensor("code_pred.codec_embd." + std::to_string(i) + ".weight", {codes, width}));
}

void CodeEmbedding::add(int codebook, int code, float* row) {
    const Tensor& table = *tables_[static_cast<size_t>(codebook)];
    dequantize(table.type, table.data + static_cast<size_t>(code) * table.row_bytes(), width_,
               scratch_.data());
    kernels().add(scratch_.data(), width_, row);
}

void CodeEmbedding::add_frame(std::span<const int32_t> frame, float* row) {
    for (int i = 0; i < kCodebooks; ++i) add(i, frame[static_cast<size_t>(i)], row);
}

}  // namespace qt
