// What the NEON products share: rows of sums, and what follows when they are complete. Static, like
// everything in headers for the files compiled with dot products.
#pragma once

#include "neon_math.h"

namespace qt::neon {

constexpr int kMaxRows = 192;  // of sums kept between chunks of k: 12 KB
constexpr int kTileRows = 6;   // 6 x 16 sums fill 24 of the 32 registers

// What happens to 4 finished sums of row r, outputs o..o+count.
static inline void finish4(const GemmArgs& g, int r, int o, int count, float32x4_t v) {
    if (g.bias) v = vaddq_f32(v, load_lanes(g.bias + o, count));
    if (g.scale) v = vmulq_f32(v, load_lanes(g.scale + o, count));
    if (g.residual) v = vaddq_f32(v, load_lanes(g.residual + r * g.residual_row + o, count));
    if (g.y) store_lanes(g.y + r * g.y_row + o, count, v);
    if (!g.z) return;
    const bool snake = g.act == Act::snake;
    const float32x4_t a = snake ? load_lanes(g.act_a + o, count) : v;
    const float32x4_t b = snake ? load_lanes(g.act_b + o, count) : v;
    store_lanes(g.z + r * g.z_row + o, count, act4(g.act, v, a, b));
}

static inline void finish(const GemmArgs& g, int r0, int rows, int o, const float* sums) {
    const int count = g.n - o < kPanel ? g.n - o : kPanel;
    for (int r = 0; r < rows; ++r, sums += kPanel)
        for (int i = 0; i < count; i += 4)
            finish4(g, r0 + r, o + i, count - i, vld1q_f32(sums + i));
}

// Rows of the next tile: six, but the last two tiles share what is left.
static inline int next_tile(int left) {
    if (left <= kTileRows) return left;
    return left < 2 * kTileRows ? (left + 1) / 2 : kTileRows;
}

static inline void clear(float* sums, int floats) {
    for (int i = 0; i < floats; i += 4) vst1q_f32(sums + i, set(0));
}

// f.template operator()<R>() for R = rows, 1..6: the number of sums has to be a constant.
template <typename F>
static inline void with_rows(int rows, const F& f) {
    switch (rows) {
        case 1:
            return f.template operator()<1>();
        case 2:
            return f.template operator()<2>();
        case 3:
            return f.template operator()<3>();
        case 4:
            return f.template operator()<4>();
        case 5:
            return f.template operator()<5>();
        default:
            return f.template operator()<6>();
    }
}

}  // namespace qt::neon
