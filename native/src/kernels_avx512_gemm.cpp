// AVX-512 products of floats with weights of any type: kernels_avx2_gemm.cpp says how, here 16
// outputs are one register and a tile is twelve rows. Each sum is the same chain of fused
// multiply-adds, so the results are those of the AVX2 kernels to the last bit. Compiled with
// -mavx512f and more (CMakeLists.txt): no shared inline functions.

#include "avx2_gemm.h"
#include "avx512.h"

namespace qt {
namespace QT_AVX512 {
namespace {

using avx2::kMaxRows;

constexpr int kChunk = 256;
constexpr int kNarrowChunk = 64;  // for one or two rows, with 4 panels side by side
constexpr int kPanels = 4;

// Each type: the bytes of a panel of k x 16 weights, and values [k0, k1) of it as floats, in
// `buffer` or where they are.
struct F32 {
    static ptrdiff_t bytes(int k) { return ptrdiff_t{k} * kPanel * 4; }
    static const float* widen(const uint8_t* panel, int k0, int, float*) {
        return reinterpret_cast<const float*>(panel) + ptrdiff_t{k0} * kPanel;
    }
};

__m256i load16(const uint8_t* halves) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves));
}

struct F16 {
    static ptrdiff_t bytes(int k) { return ptrdiff_t{k} * kPanel * 2; }
    static const float* widen(const uint8_t* panel, int k0, int k1, float* buffer) {
        const uint8_t* w = panel + bytes(k0);
        for (int i = 0; i < (k1 - k0) * kPanel; i += kPanel)
            _mm512_store_ps(buffer + i, _mm512_cvtph_ps(load16(w + i * 2)));
        return buffer;
    }
};

struct Bf16 {
    static ptrdiff_t bytes(int k) { return ptrdiff_t{k} * kPanel * 2; }
    static const float* widen(const uint8_t* panel, int k0, int k1, float* buffer) {
        const uint8_t* w = panel + bytes(k0);
        for (int i = 0; i < (k1 - k0) * kPanel; i += kPanel) {
            const __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(load16(w + i * 2)), 16);
            _mm512_store_ps(buffer + i, _mm512_castsi512_ps(wide));
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
            const __m512 scales = _mm512_cvtph_ps(load16(block));
            const uint8_t* q = block + 2 * kPanel;
            const int count = k1 - k < kW8Block ? k1 - k : kW8Block;
            for (int i = 0; i < count; ++i, q += kPanel, out += kPanel) {
                const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(q));
                const __m512 wide = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v));
                _mm512_store_ps(out, _mm512_mul_ps(wide, scales));
            }
        }
        return buffer;
    }
};

// sums[p][r] += x[r] . w[p] over k in [k0, k1), for R rows and P panels; panels[p] points at the
// weights of k0.
template <int R, int P>
void tile(const GemmArgs& g, const float* x, const float* const* panels, int k0, int k1,
          float* const* sums) {
    __m512 sum[R][P];
    const float* w[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) w[p] = panels[p];
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) sum[r][p] = _mm512_load_ps(sums[p] + r * kPanel);
    int tap = k0 / g.c_in;
    int c = k0 - tap * g.c_in;
    for (int left = k1 - k0; left > 0; ++tap, c = 0) {
        const int run = left < g.c_in - c ? left : g.c_in - c;
        left -= run;
        // Each pointer reaches three rows with the addressing modes of one instruction.
        constexpr int kPointers = (R + 2) / 3;
        const float* at[kPointers];
#pragma GCC unroll 4
        for (int i = 0; i < kPointers; ++i) at[i] = x + tap * g.x_tap + c + i * 3 * g.x_row;
        for (int i = 0; i < run; ++i) {
            __m512 v[P];
#pragma GCC unroll 4
            for (int p = 0; p < P; ++p) {
                v[p] = _mm512_loadu_ps(w[p]);
                w[p] += kPanel;
            }
#pragma GCC unroll 12
            for (int r = 0; r < R; ++r) {
                const __m512 xr = _mm512_set1_ps(at[r / 3][r % 3 * g.x_row]);
#pragma GCC unroll 4
                for (int p = 0; p < P; ++p) sum[r][p] = _mm512_fmadd_ps(xr, v[p], sum[r][p]);
            }
#pragma GCC unroll 4
            for (int j = 0; j < kPointers; ++j) ++at[j];
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) _mm512_store_ps(sums[p] + r * kPanel, sum[r][p]);
}

// Rows [r0, r0 + rows) of one panel, rows <= kMaxRows.
template <typename W>
void panel_of_rows(const GemmArgs& g, int r0, int rows, int o) {
    alignas(64) float sums[kMaxRows * kPanel];
    alignas(64) float buffer[kChunk * kPanel];
    const int k = g.taps * g.c_in;
    const uint8_t* panel = static_cast<const uint8_t*>(g.w) + o / kPanel * W::bytes(k);
    avx2::clear(sums, rows * kPanel);
    for (int k0 = 0; k0 < k; k0 += kChunk) {
        const int k1 = k0 + kChunk < k ? k0 + kChunk : k;
        const float* w = W::widen(panel, k0, k1, buffer);
        // The next chunk is fetched a little at every tile: all at once it would stall the first.
        const uint8_t* next = panel + W::bytes(k1);
        const int64_t lines = k1 < k || o + kPanel < g.n ? W::bytes(kChunk) / 64 : 0;
        int64_t fetched = 0;
        for (int r = 0; r < rows;) {
            const int count = next_rows(rows - r);
            for (const int64_t due = lines * (r + count) / rows; fetched < due; ++fetched)
                _mm_prefetch(reinterpret_cast<const char*>(next + fetched * 64), _MM_HINT_T0);
            float* at = sums + r * kPanel;
            with_rows(count,
                      [&]<int R>() { tile<R, 1>(g, g.x + (r0 + r) * g.x_row, &w, k0, k1, &at); });
            r += count;
        }
    }
    avx2::finish(g, r0, rows, o, sums);
}

// R rows (one or two) by four panels side by side.
template <typename W, int R>
void panels_of_row(const GemmArgs& g, int o) {
    alignas(64) float sums[kPanels][R * kPanel];
    alignas(64) float buffer[kPanels][kNarrowChunk * kPanel];
    float* sum[kPanels];
    const uint8_t* panel[kPanels];
    const int k = g.taps * g.c_in;
    for (int p = 0; p < kPanels; ++p) {
        sum[p] = sums[p];
        avx2::clear(sum[p], R * kPanel);
        panel[p] = static_cast<const uint8_t*>(g.w) + (o / kPanel + p) * W::bytes(k);
    }
    for (int k0 = 0; k0 < k; k0 += kNarrowChunk) {
        const int k1 = k0 + kNarrowChunk < k ? k0 + kNarrowChunk : k;
        const float* w[kPanels];
        for (int p = 0; p < kPanels; ++p) w[p] = W::widen(panel[p], k0, k1, buffer[p]);
        tile<R, kPanels>(g, g.x, w, k0, k1, sum);
    }
    for (int p = 0; p < kPanels; ++p) avx2::finish(g, 0, R, o + p * kPanel, sum[p]);
}

template <typename W>
void gemm(const GemmArgs& g) {
    int o = 0;
    for (; g.rows <= 2 && o + (kPanels - 1) * kPanel < g.n; o += kPanels * kPanel)
        g.rows == 1 ? panels_of_row<W, 1>(g, o) : panels_of_row<W, 2>(g, o);
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

}  // namespace QT_AVX512
}  // namespace qt
