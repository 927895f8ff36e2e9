#include "code_predictor.h"

#include <algorithm>

#include "status.h"

namespace qt {

CodePredictor::CodePredictor(Pool& pool, const Gguf& file, CodeEmbedding& embedding,
                             Precision precision)
    : embedding_(embedding),
      transformer_(pool, file, "code_pred", TransformerShape::read(file, "qwen3-tts.code_pred"),
                   kCodebooks, precision) {
    const Bits bits = precision.matrices;
    const int hidden = transformer_.shape().hidden;
    projects_ = file.find("code_pred.mtp_proj.weight") != nullptr;
    if (projects_) {
        projection_ = pack_linear(
            pool, file.tensor("code_pred.mtp_proj.weight", {hidden, embedding.width()}), bits);
        projection_bias_ = to_floats(file.tensor("code_pred.mtp_proj.bias", {hidden}));
    } else if (hidden != embedding.width()) {
        file.fail(
            strf("tensor 'code_pred.mtp_proj.weight' is missing: the talker is %d wide, the code "
                 "predictor %d",
                 embedding.width(), hidden));
    }
    for (int i = 0; i + 1 < kCodebooks; ++i)
        heads_.push_back(
            pack_linear(pool,
                        file.tensor("code_pred.lm_head." + std::to_string(i) + ".weight",
                                    {embedding.codes(), hidden}),
                        bits));
}

// h [rows, hidden] = input [rows, talker hidden], through the projection where there is one.
void CodePredictor::project(Pool& pool, int rows) {
    const int width = embedding_.width();
    const int hidden = transformer_.shape().hidden;
    if (projects_)
        linear(pool, projection_,
               {.x = input_.data(),
                .x_row = width,
                .rows = rows,
                .bias = projection_bias_.data(),
                .y = h_.data(),
                .y_row = hidden},
               quantised_);
    else
        std::copy_n(input_.begin(), static_cast<ptrdiff_t>(rows) * width, h_.begin());
}

void CodePredictor::run(Pool& pool, std::span<Frame> frames) {
    const auto n = frames.size();
    const auto width = static_cast<size_t>(embedding_.width());
    const auto hidden = static_cast<size_t>(transformer_.shape().hidden);
    while (caches_.size() < n) caches_.emplace_back(transformer_.shape(), kCodebooks, false);
    input_.resize(2 * n * width);
    h_.resize(2 * n * hidden);
    normed_.resize(n * hidden);
    logits_.resize(n * static_cast<size_t>(embedding_.codes()));
    scratch_.resize(static_cast<size_t>(pool.size()) * static_cast<size_t>(embedding_.codes()));

    // Position 0: the talker's hidden state; position 1: code 0.
    rows_.clear();
    std::fill(input_.begin(), input_.end(), 0.0F);
    for (size_t i = 0; i < n; ++i) {
        float* row = input_.data() + 2 * i * width;
        std::copy_n(frames[i].hidden, width, row);
        embedding_.add(0, frames[i].codes[0], row + width);
        rows_.push_back({&caches_[i], 0});
        rows_.push_back({&caches_[i], 1});
    }
    project(pool, static_cast<int>(2 * n));
    transformer_.forward(pool, h_.data(), rows_);
    choose_codes(pool, frames, 1, 2);

    for (int codebook = 2; codebook < kCodebooks; ++codebook) {
        rows_.clear();
        std::fill_n(input_.begin(), n * width, 0.0F);
        for (size_t i = 0; i < n; ++i) {
            embedding_.add(codebook - 1, frames[i].codes[static_cast<size_t>(codebook) - 1],
                           input_.data() + i * width);
            rows_.push_back({&caches_[i], codebook});
        }
        project(pool, static_cast<int>(n));
        transformer_.forward(pool, h_.data(), rows_);
        choose_codes(pool, frames, codebook, 1);
    }
}

double CodePredictor::weight_bytes() const {
    const auto projection = static_cast<double>(projection_.data.bytes());
    double bytes = (kCodebooks - 1) * (transformer_.weight_bytes() + projection);
    for (const Packed& head : heads_) bytes += static_cast<double>(head.data.bytes());
    return bytes;
}

// Code `codebook` of each frame from its last row of h (every row_step-th).
void CodePredictor::choose_codes(Pool& pool, std::span<Frame> frames, int codebook, int row_step) {
    const int hidden = transformer_.shape().hidden;
    const auto codes = static_cast<size_t>(embedding_.codes());
    const auto step = static_cast<size_t>(row_step);
    for (size_t i = 0; i < frames.size(); ++i)
        transformer_.final_norm(h_.data() + (i * step + step - 1) * static_cast<size_t>(hidden),
                                normed_.data() + i * static_cast<size_t>(hidden));
    linear(pool, heads_[static_cast<size_t>(codebook) - 1],
           {.x = normed_.data(),
            .x_row = hidden,
            .rows = static_cast<int>(frames.size()),
            .y = logits_.data(),
            .y_row = static_cast<ptrdiff_t>(codes)},
           quantised_);
    pool.parallel_for(static_cast<int>(frames.size()), [&](int piece, int worker) {
        const auto i = static_cast<size_t>(piece);
        Frame& f = frames[i];
        const double random = uniform_at(f.seed, f.index, static_cast<uint32_t>(codebook));
        const std::span<float> scratch(scratch_.data() + static_cast<size_t>(worker) * codes,
                                       codes);
        const int code = choose({logits_.data() + i * codes, codes}, f.rules, random, scratch);
        f.failed = f.failed || code < 0;
        const std::span<int32_t> chosen = f.would_choose.empty() ? f.codes : f.would_choose;
        chosen[static_cast<size_t>(codebook)] = code < 0 ? 0 : code;
    });
}

}  // namespace qt
