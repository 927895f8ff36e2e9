// AVX2 versions of minimal filtering. Compiled with -mavx2 -mfma -mf16c: no shared inline
// functions.

#include "kernels_neon.h"
#include "neon_gemm.h"
#include "winograd_points.h"

namespace qt {
namespace neon {
namespace {

// Rows d[first], d[first + 2], .. of a tile, N of them, times a product's coefficients; the leading
// one is 1.
template <int N>
inline __attribute__((always_inline)) float32x4_t weighted(const float* d, ptrdiff_t step,
                                                           int count, const float32x4_t* product) {
    float32x4_t sum = load_lanes(d + (N - 1) * 2 * step, count);
#pragma GCC unroll 4
    for (int i = 0; i < N - 1; ++i)
        sum = vfmaq_f32(sum, product[i], load_lanes(d + i * 2 * step, count));
    return sum;
}

void pair_in(const WinogradInArgs& a) {
    const ptrdiff_t step = a.dilation * a.x_row;
    const float32x4_t p = set(static_cast<float>(kWinogradPoints[a.part]));
    float32x4_t product[3];
    for (int i = 0; i < 3; ++i)
        product[i] = set(static_cast<float>(kWinogradProducts[a.part].of[i]));
    for (int t = 0; t < a.n_tiles; ++t) {
        const float* d = a.x + a.tiles[t].row * a.x_row;
        const ptrdiff_t at = ptrdiff_t{t} * a.channels;
        for (int c = 0; c < a.channels; c += 4) {
            const int count = a.channels - c;
            const float32x4_t odd = weighted<4>(d + step + c, step, count, product);
            const float32x4_t even = weighted<4>(d + 2 * step + c, step, count, product);
            store_lanes(a.u[0] + at + c, count, vfmaq_f32(even, p, odd));
            store_lanes(a.u[1] + at + c, count, vfmsq_f32(even, p, odd));
        }
    }
}

void ends_in(const WinogradInArgs& a) {
    const ptrdiff_t step = a.dilation * a.x_row;
    float32x4_t product[4];
    for (int i = 0; i < 4; ++i)
        product[i] = set(static_cast<float>(kWinogradProducts[a.part].of[i]));
    for (int t = 0; t < a.n_tiles; ++t) {
        const float* d = a.x + a.tiles[t].row * a.x_row;
        const ptrdiff_t at = ptrdiff_t{t} * a.channels;
        for (int c = 0; c < a.channels; c += 4) {
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
    float32x4_t power[kWinogradPairs][kWinogradOut];
    for (int k = 0; k < kWinogradPairs; ++k) {
        float p = 1;
        for (int i = 0; i < kWinogradOut; ++i) {
            power[k][i] = set(p);
            p *= static_cast<float>(kWinogradPoints[k]);
        }
    }
    for (int t = 0; t < a.n_tiles; ++t) {
        const WinogradTile tile = a.tiles[t];
        for (int o = 0; o < a.out.n; o += 4) {
            const int count = a.out.n - o;
            const float* m = a.m + ptrdiff_t{t} * a.out.n + o;
            float32x4_t v[kWinogradOut] = {load_lanes(m + (kWinogradIn - 2) * a.plane, count),
                                           set(0), set(0),
                                           load_lanes(m + (kWinogradIn - 1) * a.plane, count)};
#pragma GCC unroll 4
            for (int k = 0; k < kWinogradPairs; ++k) {
                const float32x4_t plus = load_lanes(m + 2 * k * a.plane, count);
                const float32x4_t minus = load_lanes(m + (2 * k + 1) * a.plane, count);
                const float32x4_t sum = vaddq_f32(plus, minus);
                const float32x4_t difference = vsubq_f32(plus, minus);
#pragma GCC unroll 4
                for (int i = 0; i < kWinogradOut; ++i)
                    v[i] = vfmaq_f32(v[i], power[k][i], i % 2 ? difference : sum);
            }
            for (int i = tile.skip; i < kWinogradOut; ++i)
                finish4(a.out, tile.row + i * a.dilation, o, count, v[i]);
        }
    }
}

}  // namespace neon
}  // namespace qt
