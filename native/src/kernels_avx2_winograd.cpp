// AVX2 versions of minimal filtering. Compiled with -mavx2 -mfma -mf16c: no shared inline
// functions.

#include "avx2_gemm.h"
#include "kernels_avx2_rows.h"
#include "winograd_points.h"

namespace qt {
namespace avx2 {
namespace {

// Rows d[first], d[first + 2], .. of a tile, N of them, times a product's coefficients; the leading
// one is 1.
template <int N>
inline __attribute__((always_inline)) __m256 weighted(const float* d, ptrdiff_t step, int count,
                                                      const __m256* product) {
    __m256 sum = load_lanes(d + (N - 1) * 2 * step, count);
#pragma GCC unroll 4
    for (int i = 0; i < N - 1; ++i)
        sum = _mm256_fmadd_ps(product[i], load_lanes(d + i * 2 * step, count), sum);
    return sum;
}

void pair_in(const WinogradInArgs& a) {
    const ptrdiff_t step = a.dilation * a.x_row;
    const __m256 p = set(static_cast<float>(kWinogradPoints[a.part]));
    __m256 product[3];
    for (int i = 0; i < 3; ++i)
        product[i] = set(static_cast<float>(kWinogradProducts[a.part].of[i]));
    for (int t = 0; t < a.n_tiles; ++t) {
        const float* d = a.x + a.tiles[t].row * a.x_row;
        const ptrdiff_t at = ptrdiff_t{t} * a.channels;
        for (int c = 0; c < a.channels; c += 8) {
            const int count = a.channels - c;
            const __m256 odd = weighted<4>(d + step + c, step, count, product);
            const __m256 even = weighted<4>(d + 2 * step + c, step, count, product);
            store_lanes(a.u[0] + at + c, count, _mm256_fmadd_ps(p, odd, even));
            store_lanes(a.u[1] + at + c, count, _mm256_fnmadd_ps(p, odd, even));
        }
    }
}

void ends_in(const WinogradInArgs& a) {
    const ptrdiff_t step = a.dilation * a.x_row;
    __m256 product[4];
    for (int i = 0; i < 4; ++i)
        product[i] = set(static_cast<float>(kWinogradProducts[a.part].of[i]));
    for (int t = 0; t < a.n_tiles; ++t) {
        const float* d = a.x + a.tiles[t].row * a.x_row;
        const ptrdiff_t at = ptrdiff_t{t} * a.channels;
        for (int c = 0; c < a.channels; c += 8) {
            const int count = a.channels - c;
            store_lanes(a.u[0] + at + c, count, weighted<5>(d + c, step, count, product));
            store_lanes(a.u[1] + at + c, count, weighted<5>(d + step + c, step, count, product));
        }
    }
}

}  // namespace

void winograd_in(const WinogradInArgs& a) {
    if (a.part < kWinogradPairs)
        pair_in(a);
    else
        ends_in(a);
}

void winograd_out(const WinogradOutArgs& a) {
    __m256 power[kWinogradPairs][kWinogradOut];
    for (int k = 0; k < kWinogradPairs; ++k) {
        float p = 1;
        for (int i = 0; i < kWinogradOut; ++i) {
            power[k][i] = set(p);
            p *= static_cast<float>(kWinogradPoints[k]);
        }
    }
    for (int t = 0; t < a.n_tiles; ++t) {
        const WinogradTile tile = a.tiles[t];
        for (int o = 0; o < a.out.n; o += 8) {
            const int count = a.out.n - o;
            const float* m = a.m + ptrdiff_t{t} * a.out.n + o;
            __m256 v[kWinogradOut] = {load_lanes(m + (kWinogradIn - 2) * a.plane, count), set(0),
                                      set(0), load_lanes(m + (kWinogradIn - 1) * a.plane, count)};
#pragma GCC unroll 4
            for (int k = 0; k < kWinogradPairs; ++k) {
                const __m256 plus = load_lanes(m + 2 * k * a.plane, count);
                const __m256 minus = load_lanes(m + (2 * k + 1) * a.plane, count);
                const __m256 sum = _mm256_add_ps(plus, minus);
                const __m256 difference = _mm256_sub_ps(plus, minus);
#pragma GCC unroll 4
                for (int i = 0; i < kWinogradOut; ++i)
                    v[i] = _mm256_fmadd_ps(power[k][i], i % 2 ? difference : sum, v[i]);
            }
            for (int i = tile.skip; i < kWinogradOut; ++i)
                finish8(a.out, tile.row + i * a.dilation, o, count, v[i]);
        }
    }
}

}  // namespace avx2
}  // namespace qt
