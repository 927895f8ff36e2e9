#include "transformer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "status.h"

namespace qt {
namespace {

// The gate and up matrices in units of `unit` rows each, in turn, so that the piece that computed
// a unit of gates has the ups beside it.
std::vector<RowRef> interleave(const Tensor& gate, const Tensor& up, int64_t n, int unit) {
    std::vector<RowRef> rows;
    for (int64_t first = 0; first < n; first += unit) {
        for (int64_t i = first; i < first + unit; ++i) rows.push_back({&gate, i});
        for (int64_t i = first; i < first + unit; ++i) rows.push_back({&up, i});
    }
    return rows;
}

bool quantised(const Tensor& t) {
    return t.type != TensorType::f32 && t.type != TensorType::f16 && t.type != TensorType::bf16;
}

template <typename T>
void grow(std::vector<T>& v, size_t n) {
    if (v.size() < n) v.resize(n);
}

}  // namespace

TransformerShape TransformerShape::read(const Gguf& file, const std::string& prefix) {
    TransformerShape s;
    s.hidden = file.integer(prefix + ".embedding_length", 8, 1 << 16);
    s.ffn = file.integer(prefix + ".feed_forward_length", 16, 1 << 18);
    s.layers = file.integer(prefix + ".block_count", 1, 1024);
    s.heads = file.integer(prefix + ".attention.head_count", 1, 1024);
    s.kv_heads = file.integer(prefix + ".attention.head_count_kv", 1, 1024);
    s.head_dim = file.integer(prefix + ".attention.key_length", 2, 1024);
    s.rope_theta = file.number(prefix + ".rope.freq_base");
    s.eps = file.number(prefix + ".attention.layer_norm_rms_epsilon");
    if (s.heads % s.kv_heads != 0)
        file.fail(strf("key '%s.attention.head_count' is %d, no multiple of head_count_kv %d",
                       prefix.c_str(), s.heads, s.kv_heads));
    if (s.head_dim % 2 != 0) file.fail("key '" + prefix + ".attention.key_length' is odd");
    if (s.ffn % kPanel != 0)
        file.fail(strf("key '%s.feed_forward_length' is %d, no multiple of %d", prefix.c_str(),
                       s.ffn, kPanel));
    if (!(s.rope_theta > 1)) file.fail("key '" + prefix + ".rope.freq_base' is not above 1");
    if (!(s.eps > 0))
        file.fail("key '" + prefix + ".attention.layer_norm_rms_epsilon' is not above 0");
    return s;
}

KvCache::KvCache(const TransformerShape& shape, int capacity, bool half)
    : layers_(shape.layers),
      kv_heads_(shape.kv_heads),
      head_dim_(shape.head_dim),
      capacity_(capacity),
      half_(half) {
    const size_t values =
        static_cast<size_t>(shape.layers) * shape.kv_heads * capacity * shape.head_dim;
    // No huge pages: every head of every layer would hold one from its first position on.
    keys_ = Block(values * (half ? 2 : 4), false);
    values_ = Block(values * (half ? 2 : 4), false);
}

void* KvCache::at(const Block& block, int layer, int head, int position) const {
    const size_t index =
        ((static_cast<size_t>(layer) * kv_heads_ + head) * capacity_ + position) * head_dim_;
    return block.as<uint8_t>() + index * (half_ ? 2 : 4);
}

void KvCache::copy_prefix(const KvCache& from, int n) {
    const size_t bytes = static_cast<size_t>(n) * head_dim_ * (half_ ? 2 : 4);
    for (int layer = 0; layer < layers_; ++layer)
        for (int head = 0; head < kv_heads_; ++head) {
            std::memcpy(key(layer, head, 0), from.key(layer, head, 0), bytes);
            std::memcpy(value(layer, head, 0), from.value(layer, head, 0), bytes);
        }
}

Transformer::Transformer(Pool& pool, const Gguf& file, const std::string& prefix,
                         const TransformerShape& shape, int positions, Precision precision)
    : shape_(shape), layers_(static_cast<size_t>(shape.layers)), positions_(positions) {
    for (int i = 0; i < shape.layers; ++i)
        load_layer(pool, file, prefix + ".blk." + std::to_string(i), precision,
                   layers_[static_cast<size_t>(i)]);
    output_norm_ = to_floats(file.tensor(prefix + ".output_norm.weight", {shape.hidden}));
    const int half = shape.head_dim / 2;
    // As the reference: frequencies and angles are rounded to fp32 before the cosine.
    for (int p = 0; p < positions; ++p)
        for (int i = 0; i < half; ++i) {
            const float exponent = static_cast<float>(2 * i) / static_cast<float>(shape.head_dim);
            const float angle =
                static_cast<float>(p) * (1.0F / std::pow(shape.rope_theta, exponent));
            cos_.push_back(std::cos(angle));
            sin_.push_back(std::sin(angle));
        }
}

void Transformer::load_layer(Pool& pool, const Gguf& file, const std::string& name,
                             Precision precision, Layer& layer) {
    const Bits bits = precision.matrices;
    const TransformerShape& s = shape_;
    const int64_t q_rows = static_cast<int64_t>(s.heads) * s.head_dim;
    const int64_t kv_rows = static_cast<int64_t>(s.kv_heads) * s.head_dim;
    layer.attn_norm = to_floats(file.tensor(name + ".attn_norm.weight", {s.hidden}));
    layer.ffn_norm = to_floats(file.tensor(name + ".ffn_norm.weight", {s.hidden}));
    layer.q_norm = to_floats(file.tensor(name + ".attn_q_norm.weight", {s.head_dim}));
    layer.k_norm = to_floats(file.tensor(name + ".attn_k_norm.weight", {s.head_dim}));
    const Tensor& q = file.tensor(name + ".attn_q.weight", {q_rows, s.hidden});
    const Tensor& k = file.tensor(name + ".attn_k.weight", {kv_rows, s.hidden});
    const Tensor& v = file.tensor(name + ".attn_v.weight", {kv_rows, s.hidden});
    std::vector<RowRef> qkv;
    for (int64_t i = 0; i < q_rows; ++i) qkv.push_back({&q, i});
    for (int64_t i = 0; i < kv_rows; ++i) qkv.push_back({&k, i});
    for (int64_t i = 0; i < kv_rows; ++i) qkv.push_back({&v, i});
    layer.qkv = pack_rows(pool, qkv, bits);
    layer.out =
        pack_linear(pool, file.tensor(name + ".attn_output.weight", {s.hidden, q_rows}), bits);
    const Tensor& gate = file.tensor(name + ".ffn_gate.weight", {s.ffn, s.hidden});
    const Tensor& up = file.tensor(name + ".ffn_up.weight", {s.ffn, s.hidden});
    const bool integers = bits != Bits::as_in_file || (quantised(gate) && quantised(up));
    const int unit = integers ? kQ8Rows : kPanel;
    layer.gate_up = pack_rows(pool, interleave(gate, up, s.ffn, unit), bits);
    layer.down = pack_linear(pool, file.tensor(name + ".ffn_down.weight", {s.hidden, s.ffn}),
                             precision.down);
    for (const Packed* p : {&layer.qkv, &layer.out, &layer.gate_up, &layer.down})
        exact_ = exact_ && !p->integers();
}

void Transformer::reserve(int rows, int workers) {
    const TransformerShape& s = shape_;
    const auto n = static_cast<size_t>(rows);
    grow(x_, n * static_cast<size_t>(s.hidden));
    grow(qkv_, n * static_cast<size_t>((s.heads + 2 * s.kv_heads) * s.head_dim));
    grow(attn_, n * static_cast<size_t>(s.heads * s.head_dim));
    grow(gate_up_, n * static_cast<size_t>(2 * s.ffn));
    grow(act_, n * static_cast<size_t>(s.ffn));
    grow(scores_, static_cast<size_t>(workers) * static_cast<size_t>(positions_));
}

void Transformer::norm_rows(Pool& pool, const float* h, const float* weight, int rows) {
    by_rows(pool, rows, [&](int r) {
        const ptrdiff_t at = static_cast<ptrdiff_t>(r) * shape_.hidden;
        kernels().rms_norm(h + at, weight, shape_.eps, shape_.hidden, x_.data() + at);
    });
}

void Transformer::forward(Pool& pool, float* h, const std::vector<CacheRow>& rows) {
    const TransformerShape& s = shape_;
    const int n = static_cast<int>(rows.size());
    reserve(n, pool.size());
    runs_.clear();
    for (int r = 0; r < n; ++r) {
        if (r > 0 && rows[static_cast<size_t>(r)].cache == rows[static_cast<size_t>(r) - 1].cache)
            runs_.back().end = r + 1;
        else
            runs_.push_back({r, r + 1});
    }
    const int q_dim = s.heads * s.head_dim;
    const int qkv_dim = q_dim + 2 * s.kv_heads * s.head_dim;
    for (int i = 0; i < s.layers; ++i) {
        const Layer& layer = layers_[static_cast<size_t>(i)];
        norm_rows(pool, h, layer.attn_norm.data(), n);
        linear(pool, layer.qkv,
               {.x = x_.data(), .x_row = s.hidden, .rows = n, .y = qkv_.data(), .y_row = qkv_dim},
               quantised_);
        attention(pool, layer, i, rows);
        linear(pool, layer.out,
               {.x = attn_.data(),
                .x_row = q_dim,
                .rows = n,
                .residual = h,
                .residual_row = s.hidden,
                .y = h,
                .y_row = s.hidden},
               quantised_);
        feed_forward(pool, layer, h, n);
    }
}

// One piece per key/value head and cache: it stores the keys and values of its rows, then lets
// its query heads look at them.
void Transformer::attention(Pool& pool, const Layer& layer, int index,
                            const std::vector<CacheRow>& rows) {
    const TransformerShape& s = shape_;
    const int group = s.heads / s.kv_heads;
    const ptrdiff_t qkv_dim = (s.heads + 2 * s.kv_heads) * s.head_dim;
    pool.parallel_for(static_cast<int>(runs_.size()) * s.kv_heads, [&](int piece, int worker) {
        const Run run = runs_[static_cast<size_t>(piece / s.kv_heads)];
        const int kv_head = piece % s.kv_heads;
        float* scores = scores_.data() + static_cast<ptrdiff_t>(worker) * positions_;
        for (int r = run.begin; r < run.end; ++r)
            store_head(layer, index, kv_head, rows[static_cast<size_t>(r)],
                       qkv_.data() + r * qkv_dim);
        for (int r = run.begin; r < run.end; ++r)
            for (int head = kv_head * group; head < (kv_head + 1) * group; ++head)
                attend_head(layer, index, head, rows[static_cast<size_t>(r)], r, scores);
    });
}

void Transformer::store_head(const Layer& layer, int index, int head, const CacheRow& row,
                             float* qkv) {
    const TransformerShape& s = shape_;
    const int d = s.head_dim;
    float* k = qkv + static_cast<ptrdiff_t>(s.heads + head) * d;
    const float* v = qkv + static_cast<ptrdiff_t>(s.heads + s.kv_heads + head) * d;
    const ptrdiff_t angle = static_cast<ptrdiff_t>(row.position) * (d / 2);
    kernels().rms_norm(k, layer.k_norm.data(), s.eps, d, k);
    kernels().rope(k, cos_.data() + angle, sin_.data() + angle, d / 2);
    void* key = row.cache->key(index, head, row.position);
    void* value = row.cache->value(index, head, row.position);
    if (row.cache->half()) {
        kernels().float_to_half_row(k, d, static_cast<uint16_t*>(key));
        kernels().float_to_half_row(v, d, static_cast<uint16_t*>(value));
    } else {
        std::memcpy(key, k, static_cast<size_t>(d) * sizeof(float));
        std::memcpy(value, v, static_cast<size_t>(d) * sizeof(float));
    }
}

void Transformer::attend_head(const Layer& layer, int index, int head, const CacheRow& row, int r,
                              float* scores) {
    const TransformerShape& s = shape_;
    const int d = s.head_dim;
    const int kv_head = head / (s.heads / s.kv_heads);
    float* q = qkv_.data() + (static_cast<ptrdiff_t>(r) * (s.heads + 2 * s.kv_heads) + head) * d;
    const ptrdiff_t angle = static_cast<ptrdiff_t>(row.position) * (d / 2);
    kernels().rms_norm(q, layer.q_norm.data(), s.eps, d, q);
    kernels().rope(q, cos_.data() + angle, sin_.data() + angle, d / 2);
    const AttnArgs args = {.q = q,
                           .k = row.cache->key(index, kv_head, 0),
                           .v = row.cache->value(index, kv_head, 0),
                           .kv_row = row.cache->row(),
                           .n = row.position + 1,
                           .d = d,
                           .scale = 1 / std::sqrt(static_cast<float>(d)),
                           .scores = scores,
                           .out = attn_.data() + (static_cast<ptrdiff_t>(r) * s.heads + head) * d};
    row.cache->half() ? kernels().attention_f16(args) : kernels().attention_f32(args);
}

void Transformer::feed_forward(Pool& pool, const Layer& layer, float* h, int rows) {
    const TransformerShape& s = shape_;
    norm_rows(pool, h, layer.ffn_norm.data(), rows);
    const int unit = layer.gate_up.unit();
    linear_then(
        pool, layer.gate_up,
        {.x = x_.data(), .x_row = s.hidden, .rows = rows, .y = gate_up_.data(), .y_row = 2 * s.ffn},
        quantised_, [&](int first, int last) {
            for (int r = 0; r < rows; ++r)
                for (int o = first; o < last; o += 2 * unit) {
                    const float* gate = gate_up_.data() + static_cast<ptrdiff_t>(r) * 2 * s.ffn + o;
                    float* act = act_.data() + static_cast<ptrdiff_t>(r) * s.ffn + o / 2;
                    kernels().swiglu(gate, gate + unit, unit, act);
                }
        });
    linear(pool, layer.down,
           {.x = act_.data(),
            .x_row = s.ffn,
            .rows = rows,
            .residual = h,
            .residual_row = s.hidden,
            .y = h,
            .y_row = s.hidden},
           quantised_);
}

double Transformer::weight_bytes() const {
    size_t bytes = 0;
    for (const Layer& l : layers_)
        bytes +=
            l.qkv.data.bytes() + l.out.data.bytes() + l.gate_up.data.bytes() + l.down.data.bytes();
    return static_cast<double>(bytes);
}

void Transformer::final_norm(const float* h, float* y) const {
    kernels().rms_norm(h, output_norm_.data(), shape_.eps, shape_.hidden, y);
}

}  // namespace qt
