// AVX2 products of int16 with int16 weights. Compiled with -mavx2 -mfma: no shared inline
// functions.
//
// A run of at most kI16Run channels of one tap is summed in int32 by vpmaddwd (two products an
// instruction: 1.6 times the multiply-adds of floats), then scaled by its input row and added to
// the float sums, which wait in memory between runs.

#include "avx2_gemm.h"
#include "kernels_avx2_rows.h"

namespace qt {
namespace avx2 {
namespace {

// sums[r] += x_scale[r] * (x[r] . w) over `pairs` pairs of channels, for R rows by one panel.
template <int R>
void tile(const int16_t* x, ptrdiff_t x_row, const float* x_scale, const int16_t* w, int pairs,
          float* sums) {
    __m256i sum[R][2];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = _mm256_setzero_si256();
    // Two pointers reach six rows with the addressing modes of one instruction.
    const int16_t* low = x;
    const int16_t* high = x + 3 * x_row;
    for (int i = 0; i < pairs; ++i, low += 2, high += 2, w += 2 * kPanel) {
        const __m256i w0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
        const __m256i w1 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + kPanel));
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
            int pair;
            __builtin_memcpy(&pair, r < 3 ? low + r * x_row : high + (r - 3) * x_row, sizeof pair);
            const __m256i v = _mm256_set1_epi32(pair);
            sum[r][0] = _mm256_add_epi32(sum[r][0], _mm256_madd_epi16(v, w0));
            sum[r][1] = _mm256_add_epi32(sum[r][1], _mm256_madd_epi16(v, w1));
            // Keeps GCC from multiplying all rows before it adds any, for which it spills the sums.
            asm("" : "+x"(sum[r][0]), "+x"(sum[r][1]));
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
        const __m256 scale = _mm256_broadcast_ss(x_scale + r);
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
            float* at = sums + r * kPanel + half * 8;
            _mm256_store_ps(
                at, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r][half]), scale, _mm256_load_ps(at)));
        }
    }
}

void tile_rows(int rows, const int16_t* x, ptrdiff_t x_row, const float* x_scale, const int16_t* w,
               int pairs, float* sums) {
    switch (rows) {
        case 1:
            return tile<1>(x, x_row, x_scale, w, pairs, sums);
        case 2:
            return tile<2>(x, x_row, x_scale, w, pairs, sums);
        case 3:
            return tile<3>(x, x_row, x_scale, w, pairs, sums);
        case 4:
            return tile<4>(x, x_row, x_scale, w, pairs, sums);
        case 5:
            return tile<5>(x, x_row, x_scale, w, pairs, sums);
        default:
            return tile<6>(x, x_row, x_scale, w, pairs, sums);
    }
}

// Rows [r0, r0 + rows) of one panel, rows <= kMaxRows.
void panel_of_rows(const GemmI16Args& g, int r0, int rows, int o) {
    alignas(32) float sums[kMaxRows * kPanel];
    clear(sums, rows * kPanel);
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
                const int count = next_tile(rows - r);
                for (const int due = lines * (r + count) / rows; fetched < due; ++fetched)
                    _mm_prefetch(next + fetched * 64, _MM_HINT_T0);
                tile_rows(count, x + r * g.x_row, g.x_row, scale + r, w, run / 2,
                          sums + r * kPanel);
                r += count;
            }
            w += run * kPanel;
        }
    const int count = g.out.n - o;
    const __m256 scale0 = load_lanes(g.w_scale + o, count);
    const __m256 scale1 = count > 8 ? load_lanes(g.w_scale + o + 8, count - 8) : scale0;
    for (int r = 0; r < rows; ++r) {
        float* at = sums + r * kPanel;
        _mm256_store_ps(at, _mm256_mul_ps(_mm256_load_ps(at), scale0));
        _mm256_store_ps(at + 8, _mm256_mul_ps(_mm256_load_ps(at + 8), scale1));
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
    const __m256 sign = set(-0.0F);
    __m256 largest8 = _mm256_setzero_ps();
    for (int i = 0; i < n; i += 8)
        largest8 = _mm256_max_ps(_mm256_andnot_ps(sign, load_lanes(x + i, n - i)), largest8);
    alignas(32) float lane[8];
    _mm256_store_ps(lane, largest8);
    float largest = 0;
    for (const float v : lane) largest = v > largest ? v : largest;
    const __m256 inverse = set(largest > 0 ? kI16Max / largest : 0);
    const __m256 limit = set(kI16Max);
    const __m256 low = set(-kI16Max);
    for (int i = 0; i < n; i += 8) {
        __m256 v = _mm256_round_ps(_mm256_mul_ps(load_lanes(x + i, n - i), inverse),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        v = _mm256_max_ps(_mm256_min_ps(v, limit), low);
        const __m256i wide = _mm256_cvtps_epi32(v);
        const __m128i packed =
            _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
        if (n - i >= 8) {
            _mm_storeu_si128(reinterpret_cast<__m128i*>(q + i), packed);
        } else {
            alignas(16) int16_t rest[8];
            _mm_store_si128(reinterpret_cast<__m128i*>(rest), packed);
            for (int k = 0; k < n - i; ++k) q[i + k] = rest[k];
        }
    }
    *scale = largest / kI16Max;
}

}  // namespace avx2
}  // namespace qt
