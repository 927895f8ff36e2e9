// The Qwen3 block (MODEL_SPEC 2), one implementation for the talker and the code predictor.
//
//   h += o_proj(attention(rms(h)));   h += down(silu(gate(x)) * up(x)), x = rms(h)
//
// with RMS-normed query and key heads, NEOX rotation and grouped queries. Rows of several requests
// may go through together: each row names its cache and its position.
#pragma once

#include <string>
#include <vector>

#include "gguf.h"
#include "linear.h"
#include "memory.h"
#include "threads.h"

namespace qt {

struct TransformerShape {
    int hidden = 0;
    int ffn = 0;
    int layers = 0;
    int heads = 0;
    int kv_heads = 0;
    int head_dim = 0;
    float rope_theta = 0;
    float eps = 0;

    // Reads <prefix>.embedding_length and so on, e.g. prefix "qwen3-tts.talker"; refuses what
    // cannot be.
    static TransformerShape read(const Gguf& file, const std::string& prefix);
};

// Keys (rotated) and values of one request: [layer][kv_head][capacity][head_dim] each. float32 for
// models with float weights (exact parity), half for quantised ones (half the memory traffic).
class KvCache {
  public:
    KvCache(const TransformerShape& shape, int capacity, bool half);

    int capacity() const { return capacity_; }
    bool half() const { return half_; }
    ptrdiff_t row() const { return head_dim_; }
    void* key(int layer, int head, int position) const { return at(keys_, layer, head, position); }
    void* value(int layer, int head, int position) const {
        return at(values_, layer, head, position);
    }
    // Copies positions 0..n-1 of another cache of the same shape.
    void copy_prefix(const KvCache& from, int n);

  private:
    void* at(const Block& block, int layer, int head, int position) const;

    int layers_;
    int kv_heads_;
    int head_dim_;
    int capacity_;
    bool half_;
    Block keys_;
    Block values_;
};

struct CacheRow {
    KvCache* cache = nullptr;
    int position = 0;
};

// What the matrices become. The last one of each layer (down) has a setting of its own: its inputs
// have the largest outliers.
struct Precision {
    Bits matrices = Bits::as_in_file;
    Bits down = Bits::as_in_file;
};

class Transformer {
  public:
    // prefix: "talker" or "code_pred". positions: rows of the rotation table.
    Transformer(Pool& pool, const Gguf& file, const std::string& prefix,
                const TransformerShape& shape, int positions, Precision precision);

    const TransformerShape& shape() const { return shape_; }
    // Float weights everywhere: the arithmetic is fp32 from end to end.
    bool exact() const { return exact_; }

    // h [rows.size(), hidden] in place, without the final norm. Rows of one cache are neighbours
    // with rising positions, and everything before them is in the cache already.
    void forward(Pool& pool, float* h, const std::vector<CacheRow>& rows);

    // Of all matrices: what one pass reads.
    double weight_bytes() const;

    // y = final norm of one row; y may be h.
    void final_norm(const float* h, float* y) const;

  private:
    struct Layer {
        std::vector<float> attn_norm;  // [hidden]
        std::vector<float> ffn_norm;   // [hidden]
        std::vector<float> q_norm;     // [head_dim]
        std::vector<float> k_norm;     // [head_dim]
        Packed qkv;                    // [(heads + 2 kv_heads) * head_dim, hidden]
        Packed out;                    // [hidden, heads * head_dim]
        Packed gate_up;                // units of gate and up rows in turn: [2 ffn, hidden]
        Packed down;                   // [hidden, ffn]
    };
    // Rows begin..end-1 share a cache.
    struct Run {
        int begin;
        int end;
    };

    void load_layer(Pool& pool, const Gguf& file, const std::string& name, Precision precision,
                    Layer& layer);
    void reserve(int rows, int workers);
    void norm_rows(Pool& pool, const float* h, const float* weight, int rows);
    void attention(Pool& pool, const Layer& layer, int index, const std::vector<CacheRow>& rows);
    void store_head(const Layer& layer, int index, int head, const CacheRow& row, float* qkv);
    void attend_head(const Layer& layer, int index, int head, const CacheRow& row, int r,
                     float* scores);
    void feed_forward(Pool& pool, const Layer& layer, float* h, int rows);

    TransformerShape shape_;
    bool exact_ = true;
    std::vector<Layer> layers_;
    std::vector<float> output_norm_;
    int positions_;
    std::vector<float> cos_;  // [positions, head_dim/2]
    std::vector<float> sin_;

    // Scratch, grown to the most rows seen.
    Quantised quantised_;
    std::vector<Run> runs_;
    std::vector<float> x_;        // [rows, hidden]
    std::vector<float> qkv_;      // [rows, (heads + 2 kv_heads) * head_dim]
    std::vector<float> attn_;     // [rows, heads * head_dim]
    std::vector<float> gate_up_;  // [rows, 2 ffn]
    std::vector<float> act_;      // [rows, ffn]
    std::vector<float> scores_;   // [workers, positions]
};

}  // namespace qt
