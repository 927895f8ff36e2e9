// NEON products of int16 with int16 weights, as in kernels_avx2_i16.cpp: a run of channels is
// summed in int32, then scaled and added to the float sums. Compiled for ARMv8.2: no shared inline
// functions.

#include "kernels_neon.h"
#include "neon_gemm.h"

namespace qt::neon {
namespace {

// sums[r] += x_scale[r] * (x[r] . w) over `pairs` pairs of channels, for R rows by one panel.
template <int R>
void tile(const int16_t* x, ptrdiff_t x_row, const float* x_scale, const int16_t* w, int pairs,
          float* sums) {
    int32x4_t sum[R][4];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = sum[r][2] = sum[r][3] = vdupq_n_s32(0);
    for (int i = 0; i < pairs; ++i, w += 2 * kPanel) {
        // The two channels of 8 outputs apart.
        const int16x8x2_t w0 = vld2q_s16(w);
        const int16x8x2_t w1 = vld2q_s16(w + kPanel);
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
            int32_t pair;
            __builtin_memcpy(&pair, x + r * x_row + 2 * i, sizeof pair);
            const int16x4_t v = vreinterpret_s16_s32(vdup_n_s32(pair));
            sum[r][0] = vmlal_lane_s16(sum[r][0], vget_low_s16(w0.val[0]), v, 0);
            sum[r][1] = vmlal_high_lane_s16(sum[r][1], w0.val[0], v, 0);
            sum[r][2] = vmlal_lane_s16(sum[r][2], vget_low_s16(w1.val[0]), v, 0);
            sum[r][3] = vmlal_high_lane_s16(sum[r][3], w1.val[0], v, 0);
            sum[r][0] = vmlal_lane_s16(sum[r][0], vget_low_s16(w0.val[1]), v, 1);
            sum[r][1] = vmlal_high_lane_s16(sum[r][1], w0.val[1], v, 1);
            sum[r][2] = vmlal_lane_s16(sum[r][2], vget_low_s16(w1.val[1]), v, 1);
            sum[r][3] = vmlal_high_lane_s16(sum[r][3], w1.val[1], v, 1);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            float* at = sums + r * kPanel + i * 4;
            vst1q_f32(at, vfmaq_n_f32(vld1q_f32(at), vcvtq_f32_s32(sum[r][i]), x_scale[r]));
        }
}

// Rows [r0, r0 + rows) of one panel, rows <= kMaxRows.
void panel_of_rows(const GemmI16Args& g, int r0, int rows, int o) {
    float sums[kMaxRows * kPanel];
    clear(sums, rows * kPanel);
    const int16_t* w = g.w + static_cast<ptrdiff_t>(o) * g.taps * g.c_in;
    for (int tap = 0; tap < g.taps; ++tap)
        for (int c = 0; c < g.c_in; c += kI16Run) {
            const int run = g.c_in - c < kI16Run ? g.c_in - c : kI16Run;
            const int16_t* x = g.x + r0 * g.x_row + tap * g.x_tap + c;
            const float* scale = g.x_scale + r0 + static_cast<ptrdiff_t>(tap) * g.dilation;
            for (int r = 0; r < rows;) {
                const int count = next_tile(rows - r);
                with_rows(count, [&]<int R>() {
                    tile<R>(x + r * g.x_row, g.x_row, scale + r, w, run / 2, sums + r * kPanel);
                });
                r += count;
            }
            w += run * kPanel;
        }
    for (int i = 0; i < kPanel && o + i < g.out.n; i += 4) {
        const float32x4_t scale = load_lanes(g.w_scale + o + i, g.out.n - o - i);
        for (int r = 0; r < rows; ++r) {
            float* at = sums + r * kPanel + i;
            vst1q_f32(at, vmulq_f32(vld1q_f32(at), scale));
        }
    }
    finish(g.out, r0, rows, o, sums);
}

}  // namespace

void gemm_i16(const GemmI16Args& g) {
    for (int r = 0; r < g.out.rows; r += kMaxRows) {
        const int rows = g.out.rows - r < kMaxRows ? g.out.rows - r : kMaxRows;
        for (int o = 0; o < g.out.n; o += kPanel) panel_of_rows(g, r, rows, o);
    }
}

void quantize_i16(const float* x, int n, int16_t* q, float* scale) {
    float32x4_t largest4 = set(0);
    for (int i = 0; i < n; i += 4)
        largest4 = vmaxnmq_f32(largest4, vabsq_f32(load_lanes(x + i, n - i)));
    const float largest = vmaxvq_f32(largest4);
    const float inverse = largest > 0 ? kI16Max / largest : 0;
    for (int i = 0; i < n; i += 4) {
        const float32x4_t v = vrndnq_f32(vmulq_n_f32(load_lanes(x + i, n - i), inverse));
        const float32x4_t within = vmaxq_f32(vminq_f32(v, set(kI16Max)), set(-kI16Max));
        const int16x4_t narrow = vqmovn_s32(vcvtnq_s32_f32(within));
        if (n - i >= 4) {
            vst1_s16(q + i, narrow);
        } else {
            int16_t rest[4];
            vst1_s16(rest, narrow);
            for (int k = 0; k < n - i; ++k) q[i + k] = rest[k];
        }
    }
    *scale = largest / kI16Max;
}

}  // namespace qt::neon
