// AVX-512 products of int16 with int16 weights: kernels_avx2_i16.cpp with vpdpwssd, which
// multiplies and adds in one instruction. Compiled with -mavx512f and more (CMakeLists.txt): no
// shared inline functions.

#include "avx2_gemm.h"
#include "avx512.h"

namespace qt {
namespace QT_AVX512 {
namespace {

using avx2::kMaxRows;

// sums[r] += x_scale[r] * (x[r] . w) over `pairs` pairs of channels, for R rows by one panel.
template <int R>
void tile(const int16_t* x, ptrdiff_t x_row, const float* x_scale, const int16_t* w, int pairs,
          float* sums) {
    __m512i sum[R];
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) sum[r] = _mm512_setzero_si512();
    // Each pointer reaches three rows with the addressing modes of one instruction.
    constexpr int kPointers = (R + 2) / 3;
    const int16_t* at[kPointers];
#pragma GCC unroll 4
    for (int i = 0; i < kPointers; ++i) at[i] = x + i * 3 * x_row;
    for (int i = 0; i < pairs; ++i, w += 2 * kPanel) {
        const __m512i v = _mm512_loadu_si512(w);
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) {
            int pair;
            __builtin_memcpy(&pair, at[r / 3] + r % 3 * x_row, sizeof pair);
            sum[r] = _mm512_dpwssd_epi32(sum[r], v, _mm512_set1_epi32(pair));
        }
#pragma GCC unroll 4
        for (int j = 0; j < kPointers; ++j) at[j] += 2;
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
        float* to = sums + r * kPanel;
        _mm512_store_ps(to, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r]), _mm512_set1_ps(x_scale[r]),
                                            _mm512_load_ps(to)));
    }
}

// w_scale times the sums: the tail of a panel may have no scales.
void scale_rows(const GemmI16Args& g, int rows, int o, float* sums) {
    const int count = g.out.n - o;
    const __m256 low = avx2::load_lanes(g.w_scale + o, count);
    const __m256 high = count > 8 ? avx2::load_lanes(g.w_scale + o + 8, count - 8) : low;
    const __m512 scale = _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
    for (int r = 0; r < rows; ++r, sums += kPanel)
        _mm512_store_ps(sums, _mm512_mul_ps(_mm512_load_ps(sums), scale));
}

// Rows [r0, r0 + rows) of one panel, rows <= kMaxRows.
void panel_of_rows(const GemmI16Args& g, int r0, int rows, int o) {
    alignas(64) float sums[kMaxRows * kPanel];
    avx2::clear(sums, rows * kPanel);
    const int16_t* w = g.w + static_cast<ptrdiff_t>(o) * g.taps * g.c_in;
    for (int tap = 0; tap < g.taps; ++tap)
        for (int c = 0; c < g.c_in; c += kI16Run) {
            const int run = g.c_in - c < kI16Run ? g.c_in - c : kI16Run;
            const int16_t* x = g.x + r0 * g.x_row + tap * g.x_tap + c;
            const float* scale = g.x_scale + r0 + static_cast<ptrdiff_t>(tap) * g.dilation;
            const auto* next = reinterpret_cast<const char*>(w + run * kPanel);
            const bool last = o + kPanel >= g.out.n && tap + 1 == g.taps && c + run == g.c_in;
            const int lines = last ? 0 : run * kPanel * 2 / 64;
            int fetched = 0;
            for (int r = 0; r < rows;) {
                const int count = next_rows(rows - r);
                for (const int due = lines * (r + count) / rows; fetched < due; ++fetched)
                    _mm_prefetch(next + fetched * 64, _MM_HINT_T0);
                with_rows(count, [&]<int R>() {
                    tile<R>(x + r * g.x_row, g.x_row, scale + r, w, run / 2, sums + r * kPanel);
                });
                r += count;
            }
            w += run * kPanel;
        }
    scale_rows(g, rows, o, sums);
    avx2::finish(g.out, r0, rows, o, sums);
}

}  // namespace

void gemm_i16(const GemmI16Args& g) {
    for (int r = 0; r < g.out.rows; r += kMaxRows) {
        const int rows = g.out.rows - r < kMaxRows ? g.out.rows - r : kMaxRows;
        for (int o = 0; o < g.out.n; o += kPanel) panel_of_rows(g, r, rows, o);
    }
}

}  // namespace QT_AVX512
}  // namespace qt
