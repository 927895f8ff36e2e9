// AVX2 products of floats with weights of any type. Compiled with -mavx2 -mfma -mf16c: no shared
// inline functions.
//
// Weights are taken in chunks of kChunk values of k by one panel of 16 outputs (16 KB as floats:
// half of the L1 cache). A chunk meets every row before the next one is fetched, and weights
// narrower than 32 bits are widened once per chunk, so that they cost no more than floats. Between
// chunks the sums wait in memory: each is still one chain over k upwards, whatever the number of
// rows and panels.

#include "avx2_gemm.h"
#include "kernels_avx2_rows.h"

namespace qt {
namespace avx2 {
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

struct F16 {
    static ptrdiff_t bytes(int k) { return ptrdiff_t{k} * kPanel * 2; }
    static const float* widen(const uint8_t* panel, int k0, int k1, float* buffer) {
        const uint8_t* w = panel + bytes(k0);
        for (int i = 0; i < (k1 - k0) * kPanel; i += 8)
            _mm256_store_ps(
                buffer + i,
                _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w + i * 2))));
        return buffer;
    }
};

struct Bf16 {
    static ptrdiff_t bytes(int k) { return ptrdiff_t{k} * kPanel * 2; }
    static const float* widen(const uint8_t* panel, int k0, int k1, float* buffer) {
        const uint8_t* w = panel + bytes(k0);
        for (int i = 0; i < (k1 - k0) * kPanel; i += 8) {
            const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(w + i * 2));
            const __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
            _mm256_store_ps(buffer + i, _mm256_castsi256_ps(wide));
        }
        return buffer;
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
            const auto* halves = reinterpret_cast<const __m128i*>(block);
            const __m256 s0 = _mm256_cvtph_ps(_mm_loadu_si128(halves));
            const __m256 s1 = _mm256_cvtph_ps(_mm_loadu_si128(halves + 1));
            const uint8_t* q = block + 2 * kPanel;
            const int count = k1 - k < kW8Block ? k1 - k : kW8Block;
            for (int i = 0; i < count; ++i, q += kPanel, out += kPanel) {
                const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(q));
                const __m256 low = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v));
                const __m256 high = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)));
                _mm256_store_ps(out, _mm256_mul_ps(low, s0));
                _mm256_store_ps(out + 8, _mm256_mul_ps(high, s1));
            }
        }
        return buffer;
    }
};

// sums[p][r] += x[r] . w[p] over k in [k0, k1), for R rows and P panels (R*P <= 6); w[p] points at
// the weights of k0. The unroll pragmas matter: without them GCC spills the sums and runs three
// times slower.
template <int R, int P>
void tile(const GemmArgs& g, const float* x, const float* const* panels, int k0, int k1,
          float* const* sums) {
    __m256 sum[R][P][2];
    const float* w[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) w[p] = panels[p];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) {
            sum[r][p][0] = _mm256_load_ps(sums[p] + r * kPanel);
            sum[r][p][1] = _mm256_load_ps(sums[p] + r * kPanel + 8);
        }
    int tap = k0 / g.c_in;
    int c = k0 - tap * g.c_in;
    for (int left = k1 - k0; left > 0; ++tap, c = 0) {
        const int run = left < g.c_in - c ? left : g.c_in - c;
        left -= run;
        // Two pointers reach six rows with the addressing modes of one instruction.
        const float* low = x + tap * g.x_tap + c;
        const float* high = low + 3 * g.x_row;
        for (int i = 0; i < run; ++i, ++low, ++high) {
            __m256 w0[P];
            __m256 w1[P];
#pragma GCC unroll 4
            for (int p = 0; p < P; ++p) {
                w0[p] = _mm256_loadu_ps(w[p]);
                w1[p] = _mm256_loadu_ps(w[p] + 8);
                w[p] += kPanel;
            }
#pragma GCC unroll 6
            for (int r = 0; r < R; ++r) {
                const __m256 v =
                    _mm256_broadcast_ss(r < 3 ? low + r * g.x_row : high + (r - 3) * g.x_row);
#pragma GCC unroll 4
                for (int p = 0; p < P; ++p) {
                    sum[r][p][0] = _mm256_fmadd_ps(v, w0[p], sum[r][p][0]);
                    sum[r][p][1] = _mm256_fmadd_ps(v, w1[p], sum[r][p][1]);
                }
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) {
            _mm256_store_ps(sums[p] + r * kPanel, sum[r][p][0]);
            _mm256_store_ps(sums[p] + r * kPanel + 8, sum[r][p][1]);
        }
}

void tile_rows(int rows, const GemmArgs& g, const float* x, const float* w, int k0, int k1,
               float* sums) {
    switch (rows) {
        case 1:
            return tile<1, 1>(g, x, &w, k0, k1, &sums);
        case 2:
            return tile<2, 1>(g, x, &w, k0, k1, &sums);
        case 3:
            return tile<3, 1>(g, x, &w, k0, k1, &sums);
        case 4:
            return tile<4, 1>(g, x, &w, k0, k1, &sums);
        case 5:
            return tile<5, 1>(g, x, &w, k0, k1, &sums);
        default:
            return tile<6, 1>(g, x, &w, k0, k1, &sums);
    }
}

// Rows [r0, r0 + rows) of one panel, rows <= kMaxRows.
template <typename W>
void panel_of_rows(const GemmArgs& g, int r0, int rows, int o) {
    alignas(32) float sums[kMaxRows * kPanel];
    alignas(32) float buffer[kChunk * kPanel];
    const int k = g.taps * g.c_in;
    const uint8_t* panel = static_cast<const uint8_t*>(g.w) + o / kPanel * W::bytes(k);
    clear(sums, rows * kPanel);
    for (int k0 = 0; k0 < k; k0 += kChunk) {
        const int k1 = k0 + kChunk < k ? k0 + kChunk : k;
        const float* w = W::widen(panel, k0, k1, buffer);
        // The next chunk is fetched a little at every tile: all at once it would stall the first.
        const uint8_t* next = panel + W::bytes(k1);
        const int coming = k1 < k ? k - k1 : o + kPanel < g.n ? k : 0;
        const int64_t lines = W::bytes(coming < kChunk ? coming : kChunk) / 64;
        int64_t fetched = 0;
        for (int r = 0; r < rows;) {
            const int count = next_tile(rows - r);
            for (const int64_t due = lines * (r + count) / rows; fetched < due; ++fetched)
                _mm_prefetch(next + fetched * 64, _MM_HINT_T0);
            tile_rows(count, g, g.x + (r0 + r) * g.x_row, w, k0, k1, sums + r * kPanel);
            r += count;
        }
    }
    finish(g, r0, rows, o, sums);
}

// R rows (one or two) by P panels side by side.
template <typename W, int R, int P>
void panels_of_row(const GemmArgs& g, int o) {
    alignas(32) float sums[P][R * kPanel];
    alignas(32) float buffer[P][kNarrowChunk * kPanel];
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

}  // namespace avx2
}  // namespace qt
