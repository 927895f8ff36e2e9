#include "codec_transformer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "status.h"

namespace qt {

struct WindowTransformer::Scratch {
    float *h, *normed, *qkv, *attended, *gate_up, *cos, *sin, *scores;
};

WindowTransformer::WindowTransformer(const Gguf& file, Pool& pool, int latent) {
    const std::string key = "qwen3-tts-tokenizer.decoder.";
    hidden_ = file.integer(key + "hidden_size", 1, 1 << 16);
    ffn_ = file.integer(key + "intermediate_size", 1, 1 << 18);
    heads_ = file.integer(key + "num_attention_heads", 1, 1 << 10);
    kv_heads_ = file.integer(key + "num_key_value_heads", 1, 1 << 10);
    head_dim_ = file.integer(key + "head_dim", 2, 1 << 10);
    window_ = file.integer(key + "sliding_window", 1, 1 << 14);
    const int layers = file.integer(key + "num_hidden_layers", 1, 256);
    eps_ = file.number(key + "rms_norm_eps");
    if (heads_ % kv_heads_ != 0)
        file.fail(strf("%snum_attention_heads is %d, not a multiple of num_key_value_heads, %d",
                       key.c_str(), heads_, kv_heads_));
    if (head_dim_ % 2 != 0)
        file.fail(strf("%shead_dim is %d, but rotation needs an even one", key.c_str(), head_dim_));
    capacity_ = window_ - 1 + kMaxRows;

    // fp32, as the official package computes it.
    const float theta = file.number(key + "rope_theta");
    for (int i = 0; i < head_dim_ / 2; ++i) {
        const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim_);
        inverse_frequency_.push_back(1.0F / std::pow(theta, exponent));
    }

    const std::string name = "tok_dec.pre_tfm.";
    const int q = heads_ * head_dim_;
    const int kv = kv_heads_ * head_dim_;
    in_ = load_linear(pool, file, name + "input_proj", hidden_, latent, true);
    out_ = load_linear(pool, file, name + "output_proj", latent, hidden_, true);
    norm_ = load_vector(file, name + "norm.weight", hidden_);
    for (int i = 0; i < layers; ++i) {
        const std::string b = strf("%sblk.%d.", name.c_str(), i);
        Block block;
        block.attn_norm = load_vector(file, b + "attn_norm.weight", hidden_);
        block.ffn_norm = load_vector(file, b + "ffn_norm.weight", hidden_);
        block.qkv = load_linears(pool, file, {b + "attn_q", b + "attn_k", b + "attn_v"},
                                 {q, kv, kv}, hidden_);
        block.out = load_linear(pool, file, b + "attn_output", hidden_, q, false);
        block.out.scale = load_vector(file, b + "attn_scale", hidden_);
        block.gate_up =
            load_linears(pool, file, {b + "ffn_gate", b + "ffn_up"}, {ffn_, ffn_}, hidden_);
        block.down = load_linear(pool, file, b + "ffn_down", hidden_, ffn_, false);
        block.down.scale = load_vector(file, b + "ffn_scale", hidden_);
        blocks_.push_back(std::move(block));
    }
}

void WindowTransformer::add_cost(FrameCost& cost) const {
    const auto add = [&](const Layer& layer) {
        cost.codec_mul_adds += layer.mul_adds(1);
        cost.codec_bytes += layer.weight_bytes();
    };
    add(in_);
    for (const Block& b : blocks_)
        for (const Layer* layer : {&b.qkv, &b.out, &b.gate_up, &b.down}) add(*layer);
    add(out_);
}

WindowCache WindowTransformer::new_cache() const {
    WindowCache cache;
    cache.kv.resize(blocks_.size() * 2 * static_cast<size_t>(capacity_) * kv_heads_ * head_dim_);
    return cache;
}

size_t WindowTransformer::scratch_floats(int rows) const {
    const int q = heads_ * head_dim_;
    const int kv = kv_heads_ * head_dim_;
    const size_t per_row = static_cast<size_t>(2 * hidden_ + 2 * q + 2 * kv + 2 * ffn_ + head_dim_);
    return per_row * rows + static_cast<size_t>(rows) * heads_ * window_;
}

float* WindowTransformer::keys(WindowCache& cache, int layer) const {
    const size_t plane = static_cast<size_t>(capacity_) * kv_heads_ * head_dim_;
    return cache.kv.data() + static_cast<size_t>(layer) * 2 * plane;
}

// Moves the last window - 1 positions to the front when `rows` more would not fit.
void WindowTransformer::make_room(WindowCache& cache, int rows) const {
    if (cache.filled + rows <= capacity_) return;
    const size_t kv = static_cast<size_t>(kv_heads_) * head_dim_;
    const int keep = std::min(cache.filled, window_ - 1);
    for (size_t plane = 0; plane < blocks_.size() * 2; ++plane) {
        float* base = cache.kv.data() + plane * static_cast<size_t>(capacity_) * kv;
        std::memmove(base, base + static_cast<size_t>(cache.filled - keep) * kv,
                     static_cast<size_t>(keep) * kv * sizeof(float));
    }
    cache.filled = keep;
}

// Rotates and appends the rows' keys and values, then attends: s.qkv -> s.attended.
void WindowTransformer::attend(Pool& pool, const Kernels& kernels, WindowCache& cache, int layer,
                               int rows, Scratch& s) const {
    const int half = head_dim_ / 2;
    const int q = heads_ * head_dim_;
    const int kv = kv_heads_ * head_dim_;
    const size_t plane = static_cast<size_t>(capacity_) * kv;
    float* k_base = keys(cache, layer);
    for (int t = 0; t < rows; ++t) {
        float* row = s.qkv + static_cast<ptrdiff_t>(t) * (q + 2 * kv);
        for (int h = 0; h < heads_ + kv_heads_; ++h)
            kernels.rope(row + h * head_dim_, s.cos + t * half, s.sin + t * half, half);
        float* k = k_base + static_cast<ptrdiff_t>(cache.filled + t) * kv;
        std::memcpy(k, row + q, static_cast<size_t>(kv) * sizeof(float));
        std::memcpy(k + plane, row + q + kv, static_cast<size_t>(kv) * sizeof(float));
    }
    pool.parallel_for(heads_, [&](int h, int) {
        const int kv_head = h / (heads_ / kv_heads_);
        for (int t = 0; t < rows; ++t) {
            const int end = cache.filled + t + 1;
            AttnArgs a;
            a.n = std::min(end, window_);
            a.q = s.qkv + static_cast<ptrdiff_t>(t) * (q + 2 * kv) + h * head_dim_;
            const float* first =
                k_base + static_cast<ptrdiff_t>(end - a.n) * kv + kv_head * head_dim_;
            a.k = first;
            a.v = first + plane;
            a.kv_row = kv;
            a.d = head_dim_;
            a.scale = 1.0F / std::sqrt(static_cast<float>(head_dim_));
            a.scores = s.scores + static_cast<ptrdiff_t>(t * heads_ + h) * window_;
            a.out = s.attended + static_cast<ptrdiff_t>(t) * q + h * head_dim_;
            kernels.attention_f32(a);
        }
    });
}

void WindowTransformer::forward(Pool& pool, const Kernels& kernels, WindowCache& cache,
                                const float* x, int rows, float* y, float* scratch) const {
    const int q = heads_ * head_dim_;
    const int kv = kv_heads_ * head_dim_;
    const int half = head_dim_ / 2;
    Scratch s;
    float* at = scratch;
    const auto take = [&](int per_row) {
        float* p = at;
        at += static_cast<ptrdiff_t>(rows) * per_row;
        return p;
    };
    s.h = take(hidden_);
    s.normed = take(hidden_);
    s.qkv = take(q + 2 * kv);
    s.attended = take(q);
    s.gate_up = take(2 * ffn_);
    s.cos = take(half);
    s.sin = take(half);
    s.scores = take(heads_ * window_);

    for (int t = 0; t < rows; ++t)
        for (int i = 0; i < half; ++i) {
            // The angle in fp32, as the official package has it; its cosine exactly.
            const float angle =
                static_cast<float>(cache.position + t) * inverse_frequency_[static_cast<size_t>(i)];
            s.cos[t * half + i] = static_cast<float>(std::cos(static_cast<double>(angle)));
            s.sin[t * half + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
        }

    make_room(cache, rows);
    const auto norm_rows = [&](const std::vector<float>& w) {
        for (int t = 0; t < rows; ++t)
            kernels.rms_norm(s.h + static_cast<ptrdiff_t>(t) * hidden_, w.data(), eps_, hidden_,
                             s.normed + static_cast<ptrdiff_t>(t) * hidden_);
    };
    run(pool, kernels, in_, {.x = x, .rows = rows, .y = s.h});
    for (size_t i = 0; i < blocks_.size(); ++i) {
        const Block& b = blocks_[i];
        norm_rows(b.attn_norm);
        run(pool, kernels, b.qkv, {.x = s.normed, .rows = rows, .y = s.qkv});
        attend(pool, kernels, cache, static_cast<int>(i), rows, s);
        run(pool, kernels, b.out, {.x = s.attended, .rows = rows, .y = s.h, .residual = s.h});
        norm_rows(b.ffn_norm);
        run(pool, kernels, b.gate_up, {.x = s.normed, .rows = rows, .y = s.gate_up});
        // silu(gate) * up, packed to [rows, ffn] over the gates.
        for (int t = 0; t < rows; ++t) {
            const float* gate = s.gate_up + static_cast<ptrdiff_t>(t) * 2 * ffn_;
            kernels.swiglu(gate, gate + ffn_, ffn_, s.gate_up + static_cast<ptrdiff_t>(t) * ffn_);
        }
        run(pool, kernels, b.down, {.x = s.gate_up, .rows = rows, .y = s.h, .residual = s.h});
    }
    norm_rows(norm_);
    run(pool, kernels, out_, {.x = s.normed, .rows = rows, .y = y});
    cache.filled += rows;
    cache.position += rows;
}

}  // namespace qt
