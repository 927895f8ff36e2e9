// The codec's transformer over latent frames: a causal window, LayerScale, RoPE by halves.
#pragma once

#include <vector>

#include "frame_cost.h"
#include "gguf.h"
#include "kernels.h"
#include "layers.h"
#include "threads.h"

namespace qt {

// Keys and values of the last window - 1 positions of every layer.
struct WindowCache {
    int64_t position = 0;   // of the next row
    int filled = 0;         // rows in use at the beginning of each layer's block
    std::vector<float> kv;  // [layers][2][capacity][kv_dim]
};

class WindowTransformer {
  public:
    WindowTransformer(const Gguf& file, Pool& pool, int latent);

    WindowCache new_cache() const;
    // Floats of scratch that forward() needs for `rows` rows.
    size_t scratch_floats(int rows) const;
    static constexpr int kMaxRows = 64;

    // x [rows, latent] -> y [rows, latent]; rows <= kMaxRows.
    void forward(Pool& pool, const Kernels& kernels, WindowCache& cache, const float* x, int rows,
                 float* y, float* scratch) const;

    void add_cost(FrameCost& cost) const;

  private:
    struct Block {
        std::vector<float> attn_norm, ffn_norm;
        Layer qkv, out, gate_up, down;
    };
    struct Scratch;

    void make_room(WindowCache& cache, int rows) const;
    void attend(Pool& pool, const Kernels& kernels, WindowCache& cache, int layer, int rows,
                Scratch& s) const;
    float* keys(WindowCache& cache, int layer) const;

    int hidden_ = 0, ffn_ = 0, heads_ = 0, kv_heads_ = 0, head_dim_ = 0, window_ = 0;
    int capacity_ = 0;  // positions per layer: the window's past and room to append
    float eps_ = 0;
    std::vector<float> inverse_frequency_;
    Layer in_, out_;
    std::vector<float> norm_;
    std::vector<Block> blocks_;
};

}  // namespace qt
