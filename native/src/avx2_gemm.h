// What the AVX2 products share: rows of sums, and what follows when they are complete. Static, like
// everything in headers for the files compiled with AVX2.
#pragma once

#include "avx2_math.h"

namespace qt::avx2 {

constexpr int kMaxRows = 192;  // of sums kept between chunks of k: 12 KB
constexpr int kTileRows = 6;   // 6 x 16 sums fill 12 of the 16 registers

// What happens to 8 finished sums of row r, outputs o..o+count.
static inline __attribute__((always_inline)) void finish8(const GemmArgs& g, int r, int o,
                                                          int count, __m256 v) {
    if (g.bias) v = _mm256_add_ps(v, load_lanes(g.bias + o, count));
    if (g.scale) v = _mm256_mul_ps(v, load_lanes(g.scale + o, count));
    if (g.residual) v = _mm256_add_ps(v, load_lanes(g.residual + r * g.residual_row + o, count));
    if (g.y) store_lanes(g.y + r * g.y_row + o, count, v);
    if (!g.z) return;
    const bool snake = g.act == Act::snake;
    const __m256 a = snake ? load_lanes(g.act_a + o, count) : v;
    const __m256 b = snake ? load_lanes(g.act_b + o, count) : v;
    store_lanes(g.z + r * g.z_row + o, count, act8(g.act, v, a, b));
}

static inline void finish(const GemmArgs& g, int r0, int rows, int o, const float* sums) {
    for (int r = 0; r < rows; ++r, sums += kPanel) {
        finish8(g, r0 + r, o, g.n - o, _mm256_load_ps(sums));
        if (g.n - o > 8) finish8(g, r0 + r, o + 8, g.n - o - 8, _mm256_load_ps(sums + 8));
    }
}

// Rows of the next tile: six, but never leaving fewer than four alone (one or two rows are too few
// sums to hide the latency of an FMA).
static inline int next_tile(int left) {
    if (left <= kTileRows) return left;
    if (left < 2 * kTileRows) return left == 7 || left == 8 ? 4 : left == 11 ? 6 : 5;
    return kTileRows;
}

static inline void clear(float* sums, int floats) {
    for (int i = 0; i < floats; i += 8) _mm256_store_ps(sums + i, _mm256_setzero_ps());
}

}  // namespace qt::avx2
