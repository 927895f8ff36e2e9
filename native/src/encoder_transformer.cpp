#include "encoder_transformer.h"

#include <algorithm>
#include <cmath>

#include "status.h"

namespace qt {

EncoderTransformer::EncoderTransformer(const Gguf& file, Pool& pool, int hidden) : hidden_(hidden) {
    const std::string key = "qwen3-tts-tokenizer.encoder.";
    heads_ = file.integer(key + "num_attention_heads", 1, 1 << 10);
    kv_heads_ = file.integer(key + "num_key_value_heads", 1, 1 << 10);
    head_dim_ = file.integer(key + "head_dim", 2, 1 << 10);
    const int ffn = file.integer(key + "intermediate_size", 1, 1 << 18);
    const int layers = file.integer(key + "num_hidden_layers", 1, 256);
    eps_ = file.number(key + "norm_eps");
    if (heads_ % kv_heads_ != 0)
        file.fail(strf("%snum_attention_heads is %d, not a multiple of num_key_value_heads, %d",
                       key.c_str(), heads_, kv_heads_));
    if (head_dim_ % 2 != 0)
        file.fail(strf("%shead_dim is %d, but rotation needs an even one", key.c_str(), head_dim_));
    const float theta = file.number(key + "rope_theta");
    for (int i = 0; i < head_dim_ / 2; ++i) {
        const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim_);
        inverse_frequency_.push_back(1.0F / std::pow(theta, exponent));
    }
    const int q = heads_ * head_dim_;
    const int kv = kv_heads_ * head_dim_;
    for (int i = 0; i < layers; ++i) {
        const std::string b = strf("tok_enc.blk.%d.", i);
        Block block;
        block.attn_norm = load_vector(file, b + "attn_norm.weight", hidden);
        block.attn_norm_bias = load_vector(file, b + "attn_norm.bias", hidden);
        block.ffn_norm = load_vector(file, b + "ffn_norm.weight", hidden);
        block.ffn_norm_bias = load_vector(file, b + "ffn_norm.bias", hidden);
        block.qkv = load_linears(pool, file, {b + "attn_q", b + "attn_k", b + "attn_v"},
                                 {q, kv, kv}, hidden);
        block.out = load_linear(pool, file, b + "attn_output", hidden, q, false);
        block.out.scale = load_vector(file, b + "attn_scale", hidden);
        block.up = load_linear(pool, file, b + "ffn_up", ffn, hidden, false);
        block.up.act = Act::gelu;
        block.down = load_linear(pool, file, b + "ffn_down", hidden, ffn, false);
        block.down.scale = load_vector(file, b + "ffn_scale", hidden);
        blocks_.push_back(std::move(block));
    }
}

void EncoderTransformer::rotate(const Kernels& kernels, float* qkv, int rows) const {
    const int half = head_dim_ / 2;
    const int width = (heads_ + 2 * kv_heads_) * head_dim_;
    std::vector<float> cos(static_cast<size_t>(half)), sin(cos.size());
    for (int t = 0; t < rows; ++t) {
        for (size_t i = 0; i < cos.size(); ++i) {
            const float angle = static_cast<float>(t) * inverse_frequency_[i];
            cos[i] = static_cast<float>(std::cos(static_cast<double>(angle)));
            sin[i] = static_cast<float>(std::sin(static_cast<double>(angle)));
        }
        for (int h = 0; h < heads_ + kv_heads_; ++h)
            kernels.rope(qkv + static_cast<ptrdiff_t>(t) * width + h * head_dim_, cos.data(),
                         sin.data(), half);
    }
}

void EncoderTransformer::attend(Pool& pool, const Kernels& kernels, const float* qkv, int rows,
                                float* out) const {
    constexpr int kQueries = 16;  // per piece
    const int q = heads_ * head_dim_;
    const int kv = kv_heads_ * head_dim_;
    const int blocks = (rows + kQueries - 1) / kQueries;
    std::vector<std::vector<float>> scores(static_cast<size_t>(pool.size()));
    pool.parallel_for(heads_ * blocks, [&](int piece, int worker) {
        std::vector<float>& mine = scores[static_cast<size_t>(worker)];
        mine.resize(static_cast<size_t>(rows));
        const int h = piece % heads_;
        // The longest rows first, so that the pieces at the end are short ones.
        const int first = (blocks - 1 - piece / heads_) * kQueries;
        for (int t = first; t < std::min(rows, first + kQueries); ++t) {
            AttnArgs a;
            a.q = qkv + static_cast<ptrdiff_t>(t) * (q + 2 * kv) + h * head_dim_;
            const float* k = qkv + q + h / (heads_ / kv_heads_) * head_dim_;
            a.k = k;
            a.v = k + kv;
            a.kv_row = q + 2 * kv;
            a.n = t + 1;
            a.d = head_dim_;
            a.scale = 1.0F / std::sqrt(static_cast<float>(head_dim_));
            a.scores = mine.data();
            a.out = out + static_cast<ptrdiff_t>(t) * q + h * head_dim_;
            kernels.attention_f32(a);
        }
    });
}

void EncoderTransformer::forward(Pool& pool, const Kernels& kernels, float* x, int rows,
                                 const Breath& breathe) const {
    const auto n = static_cast<size_t>(rows);
    std::vector<float> normed(n * static_cast<size_t>(hidden_));
    std::vector<float> qkv(n * static_cast<size_t>((heads_ + 2 * kv_heads_) * head_dim_));
    std::vector<float> heard(n * static_cast<size_t>(heads_ * head_dim_));
    std::vector<float> wide(n * static_cast<size_t>(blocks_.front().up.n()));
    const auto norm_rows = [&](const std::vector<float>& w, const std::vector<float>& b) {
        for (int t = 0; t < rows; ++t)
            kernels.layer_norm(x + static_cast<ptrdiff_t>(t) * hidden_, w.data(), b.data(), eps_,
                               hidden_, normed.data() + static_cast<ptrdiff_t>(t) * hidden_);
    };
    for (const Block& b : blocks_) {
        breathe();
        norm_rows(b.attn_norm, b.attn_norm_bias);
        run(pool, kernels, b.qkv, {.x = normed.data(), .rows = rows, .y = qkv.data()});
        rotate(kernels, qkv.data(), rows);
        attend(pool, kernels, qkv.data(), rows, heard.data());
        run(pool, kernels, b.out, {.x = heard.data(), .rows = rows, .y = x, .residual = x});
        norm_rows(b.ffn_norm, b.ffn_norm_bias);
        run(pool, kernels, b.up, {.x = normed.data(), .rows = rows, .z = wide.data()});
        run(pool, kernels, b.down, {.x = wide.data(), .rows = rows, .y = x, .residual = x});
    }
}

}  // namespace qt
