// The transformer of the codec encoder: a whole clip at once, causal without a window (the
// official package does not apply the configured one), LayerNorm, LayerScale, GELU.
#pragma once

#include <vector>

#include "breath.h"
#include "gguf.h"
#include "kernels.h"
#include "layers.h"
#include "threads.h"

namespace qt {

class EncoderTransformer {
  public:
    EncoderTransformer(const Gguf& file, Pool& pool, int hidden);

    // x [rows, hidden], in place.
    void forward(Pool& pool, const Kernels& kernels, float* x, int rows,
                 const Breath& breathe) const;

  private:
    struct Block {
        std::vector<float> attn_norm, attn_norm_bias, ffn_norm, ffn_norm_bias;
        Layer qkv, out, up, down;
    };

    void rotate(const Kernels& kernels, float* qkv, int rows) const;
    void attend(Pool& pool, const Kernels& kernels, const float* qkv, int rows, float* out) const;

    int hidden_ = 0, heads_ = 0, kv_heads_ = 0, head_dim_ = 0;
    float eps_ = 0;
    std::vector<float> inverse_frequency_;
    std::vector<Block> blocks_;
};

}  // namespace qt
