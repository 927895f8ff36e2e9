// NEON products of floats with weights of any type: kernels_avx2_gemm.cpp says how; here 16 outputs
// are four registers. Compiled for ARMv8.2: no shared inline functions.

#include "kernels_neon.h"
#include "neon_gemm.h"

namespace qt::neon {
namespace {

constexpr int kChunk = 256;
constexpr int kNarrowChunk = 64;  // for one or two rows, with up to 4 panels side by side

// Each type: the bytes of a panel of k x 16 weights, and values [k0, k1) of it as floats, in
// `buffer` or where they are.
struct F32 {
    static ptrdiff_t bytes(int k) { return ptrdiff_t{k} * kPanel * 4; }
    static const float* widen(const uint8_t* panel, int k0, int, float*) {
        return reinterpret_cast<const float*>(panel) + ptrdiff_t{k0} * kPanel;
    }
};

// f(8 halves) is two registers of floats.
template <typename F>
const float* widen_halves(const uint8_t* w, int count, float* buffer, const F& f) {
    const auto* halves = reinterpret_cast<const uint16_t*>(w);
    for (int i = 0; i < count; i += 8) {
        const float32x4x2_t wide = f(vld1q_u16(halves + i));
        vst1q_f32(buffer + i, wide.val[0]);
        vst1q_f32(buffer + i + 4, wide.val[1]);
    }
    return buffer;
}

float32x4x2_t wide_f16(uint16x8_t bits) {
    const float16x8_t h = vreinterpretq_f16_u16(bits);
    return {{vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)}};
}

float32x4x2_t wide_bf16(uint16x8_t bits) {
    return {{vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(bits), 16)),
             vreinterpretq_f32_u32(vshll_high_n_u16(bits, 16))}};
}

struct F16 {
    static ptrdiff_t bytes(int k) { return ptrdiff_t{k} * kPanel * 2; }
    static const float* widen(const uint8_t* panel, int k0, int k1, float* buffer) {
        return widen_halves(panel + bytes(k0), (k1 - k0) * kPanel, buffer, wide_f16);
    }
};

struct Bf16 {
    static ptrdiff_t bytes(int k) { return ptrdiff_t{k} * kPanel * 2; }
    static const float* widen(const uint8_t* panel, int k0, int k1, float* buffer) {
        return widen_halves(panel + bytes(k0), (k1 - k0) * kPanel, buffer, wide_bf16);
    }
};

struct W8 {
    static ptrdiff_t bytes(int k) {
        return ptrdiff_t{(k + kW8Block - 1) / kW8Block} * kW8BlockBytes;
    }
    static const float* widen(const uint8_t* panel, int k0, int k1, float* buffer) {
        float* out = buffer;
        for (int k = k0; k < k1; k += kW8Block) {
            const uint8_t* block = panel + ptrdiff_t{k / kW8Block} * kW8BlockBytes;
            const auto* halves = reinterpret_cast<const uint16_t*>(block);
            const float32x4x2_t scales[2] = {wide_f16(vld1q_u16(halves)),
                                             wide_f16(vld1q_u16(halves + 8))};
            const uint8_t* q = block + 2 * kPanel;
            const int count = k1 - k < kW8Block ? k1 - k : kW8Block;
            for (int i = 0; i < count; ++i, q += kPanel, out += kPanel) {
                const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(q));
                const int16x8_t pairs[2] = {vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)};
                for (int h = 0; h < 2; ++h) {
                    const float32x4_t low = vcvtq_f32_s32(vmovl_s16(vget_low_s16(pairs[h])));
                    const float32x4_t high = vcvtq_f32_s32(vmovl_high_s16(pairs[h]));
                    vst1q_f32(out + h * 8, vmulq_f32(low, scales[h].val[0]));
                    vst1q_f32(out + h * 8 + 4, vmulq_f32(high, scales[h].val[1]));
                }
            }
        }
        return buffer;
    }
};

// sums[p][r] += x[r] . w[p] over k in [k0, k1), for R rows and P panels (R*P <= 6); panels[p]
// points at the weights of k0.
template <int R, int P>
void tile(const GemmArgs& g, const float* x, const float* const* panels, int k0, int k1,
          float* const* sums) {
    float32x4_t sum[R][P][4];
    const float* w[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) w[p] = panels[p];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p)
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) sum[r][p][i] = vld1q_f32(sums[p] + r * kPanel + i * 4);
    int tap = k0 / g.c_in;
    int c = k0 - tap * g.c_in;
    for (int left = k1 - k0; left > 0; ++tap, c = 0) {
        const int run = left < g.c_in - c ? left : g.c_in - c;
        left -= run;
        const float* at[R];
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) at[r] = x + tap * g.x_tap + c + r * g.x_row;
        for (int i = 0; i < run; ++i) {
#pragma GCC unroll 4
            for (int p = 0; p < P; ++p) {
                const float32x4_t w0 = vld1q_f32(w[p]);
                const float32x4_t w1 = vld1q_f32(w[p] + 4);
                const float32x4_t w2 = vld1q_f32(w[p] + 8);
                const float32x4_t w3 = vld1q_f32(w[p] + 12);
                w[p] += kPanel;
#pragma GCC unroll 6
                for (int r = 0; r < R; ++r) {
                    const float v = at[r][i];
                    sum[r][p][0] = vfmaq_n_f32(sum[r][p][0], w0, v);
                    sum[r][p][1] = vfmaq_n_f32(sum[r][p][1], w1, v);
                    sum[r][p][2] = vfmaq_n_f32(sum[r][p][2], w2, v);
                    sum[r][p][3] = vfmaq_n_f32(sum[r][p][3], w3, v);
                }
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p)
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) vst1q_f32(sums[p] + r * kPanel + i * 4, sum[r][p][i]);
}

// Rows [r0, r0 + rows) of one panel, rows <= kMaxRows.
template <typename W>
void panel_of_rows(const GemmArgs& g, int r0, int rows, int o) {
    float sums[kMaxRows * kPanel];
    float buffer[kChunk * kPanel];
    const int k = g.taps * g.c_in;
    const uint8_t* panel = static_cast<const uint8_t*>(g.w) + o / kPanel * W::bytes(k);
    clear(sums, rows * kPanel);
    for (int k0 = 0; k0 < k; k0 += kChunk) {
        const int k1 = k0 + kChunk < k ? k0 + kChunk : k;
        const float* w = W::widen(panel, k0, k1, buffer);
        // The next chunk is fetched a little at every tile: all at once it would stall the first.
        const uint8_t* next = panel + W::bytes(k1);
        const int64_t lines = k1 < k || o + kPanel < g.n ? W::bytes(kChunk) / 64 : 0;
        int64_t fetched = 0;
        for (int r = 0; r < rows;) {
            const int count = next_tile(rows - r);
            for (const int64_t due = lines * (r + count) / rows; fetched < due; ++fetched)
                __builtin_prefetch(next + fetched * 64);
            float* at = sums + r * kPanel;
            with_rows(count,
                      [&]<int R>() { tile<R, 1>(g, g.x + (r0 + r) * g.x_row, &w, k0, k1, &at); });
            r += count;
        }
    }
    finish(g, r0, rows, o, sums);
}

// R rows (one or two) by P panels side by side.
template <typename W, int R, int P>
void panels_of_row(const GemmArgs& g, int o) {
    float sums[P][R * kPanel];
    float buffer[P][kNarrowChunk * kPanel];
    float* sum[P];
    const uint8_t* panel[P];
    const int k = g.taps * g.c_in;
    for (int p = 0; p < P; ++p) {
        sum[p] = sums[p];
        clear(sum[p], R * kPanel);
        panel[p] = static_cast<const uint8_t*>(g.w) + (o / kPanel + p) * W::bytes(k);
    }
    for (int k0 = 0; k0 < k; k0 += kNarrowChunk) {
        const int k1 = k0 + kNarrowChunk < k ? k0 + kNarrowChunk : k;
        const float* w[P];
        for (int p = 0; p < P; ++p) w[p] = W::widen(panel[p], k0, k1, buffer[p]);
        tile<R, P>(g, g.x, w, k0, k1, sum);
    }
    for (int p = 0; p < P; ++p) finish(g, 0, R, o + p * kPanel, sum[p]);
}

template <typename W>
void gemm(const GemmArgs& g) {
    int o = 0;
    if (g.rows == 1)
        for (; o + 3 * kPanel < g.n; o += 4 * kPanel) panels_of_row<W, 1, 4>(g, o);
    if (g.rows == 2)
        for (; o + 2 * kPanel < g.n; o += 3 * kPanel) panels_of_row<W, 2, 3>(g, o);
    for (int r = 0; r < g.rows; r += kMaxRows) {
        const int rows = g.rows - r < kMaxRows ? g.rows - r : kMaxRows;
        for (int p = o; p < g.n; p += kPanel) panel_of_rows<W>(g, r, rows, p);
    }
}

}  // namespace

void gemm_f32(const GemmArgs& g) {
    gemm<F32>(g);
}
void gemm_f16(const GemmArgs& g) {
    gemm<F16>(g);
}
void gemm_bf16(const GemmArgs& g) {
    gemm<Bf16>(g);
}
void gemm_w8(const GemmArgs& g) {
    gemm<W8>(g);
}

}  // namespace qt::neon
