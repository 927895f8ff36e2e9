#include "talker.h"

#include <algorithm>

namespace qt {
namespace {

// 4096 rows of 0.6B are 16 MB; then the cache starts over.
constexpr size_t kMostKnownRows = 4096;

std::vector<RowRef> head_rows(const Gguf& file, const TalkerInfo& info, int hidden) {
    const Tensor& head = file.tensor("talker.codec_head.weight", {info.codec_vocab, hidden});
    std::vector<RowRef> rows;
    for (int i = 0; i < info.codes; ++i) rows.push_back({&head, i});
    rows.push_back({&head, info.eos});
    return rows;
}

}  // namespace

Talker::Talker(Pool& pool, const Gguf& file, const TalkerInfo& info, int kv_size,
               Precision precision)
    : transformer_(pool, file, "talker", TransformerShape::read(file, "qwen3-tts.talker"), kv_size,
                   precision),
      text_embedding_(&file.tensor("talker.text_embd.weight", {info.text_vocab, info.text_hidden})),
      fc1_(pack_linear(
          pool, file.tensor("talker.text_proj.fc1.weight", {info.text_hidden, info.text_hidden}))),
      fc2_(pack_linear(pool,
                       file.tensor("talker.text_proj.fc2.weight", {hidden(), info.text_hidden}))),
      fc1_bias_(to_floats(file.tensor("talker.text_proj.fc1.bias", {info.text_hidden}))),
      fc2_bias_(to_floats(file.tensor("talker.text_proj.fc2.bias", {hidden()}))),
      head_(pack_rows(pool, head_rows(file, info, hidden()))) {}

void Talker::text_rows(Pool& pool, std::span<const int32_t> ids, float* rows) {
    if (known_rows_.size() > kMostKnownRows) known_rows_.clear();
    std::vector<int32_t> missing;
    for (const int32_t id : ids)
        if (known_rows_.try_emplace(id).second) missing.push_back(id);
    const auto width = static_cast<size_t>(hidden());
    if (!missing.empty()) {
        std::vector<float> computed(missing.size() * width);
        compute_text_rows(pool, missing, computed.data());
        for (size_t i = 0; i < missing.size(); ++i) {
            const float* row = computed.data() + i * width;
            known_rows_[missing[i]].assign(row, row + width);
        }
    }
    for (size_t i = 0; i < ids.size(); ++i) {
        const std::vector<float>& row = known_rows_[ids[i]];
        std::copy(row.begin(), row.end(), rows + i * width);
    }
}

void Talker::compute_text_rows(Pool& pool, std::span<const int32_t> ids, float* rows) {
    const int n = static_cast<int>(ids.size());
    const int k = fc1_.k;
    std::vector<float> x(ids.size() * static_cast<size_t>(k));
    std::vector<float> y(x.size());
    for (size_t i = 0; i < ids.size(); ++i)
        dequantize(
            text_embedding_->type,
            text_embedding_->data + static_cast<size_t>(ids[i]) * text_embedding_->row_bytes(), k,
            x.data() + i * static_cast<size_t>(k));
    linear(
        pool, fc1_,
        {.x = x.data(), .x_row = k, .rows = n, .bias = fc1_bias_.data(), .y = y.data(), .y_row = k},
        quantised_);
    kernels().activate(Act::silu, y.data(), nullptr, nullptr, n * k, y.data());
    linear(pool, fc2_,
           {.x = y.data(),
            .x_row = k,
            .rows = n,
            .bias = fc2_bias_.data(),
            .y = rows,
            .y_row = hidden()},
           quantised_);
}

void Talker::forward(Pool& pool, float* h, const std::vector<CacheRow>& rows) {
    transformer_.forward(pool, h, rows);
    for (size_t r = 0; r < rows.size(); ++r) {
        float* row = h + r * static_cast<size_t>(hidden());
        transformer_.final_norm(row, row);
    }
}

void Talker::logits(Pool& pool, const float* hidden_rows, int rows, float* logits) {
    linear(pool, head_,
           {.x = hidden_rows, .x_row = hidden(), .rows = rows, .y = logits, .y_row = head_.n},
           quantised_);
}

}  // namespace qt
