// Minimal filtering on vectors of floats: what the instruction sets share. L gives the vector:
//   Vec, kWidth, set(float), load and store(.., count, ..) of the first `count` lanes,
//   add, sub, fma(a, b, c) = a*b + c, fnma(a, b, c) = c - a*b,
//   finish(args, row, output, count, sums): what follows a sum, as GemmArgs says
// and belongs to one instruction set, so that no two of them share an instance.
#pragma once

#include "kernels.h"
#include "winograd_points.h"

namespace qt {

// Rows d[first], d[first + 2], .. of a tile, N of them, times a product's coefficients; the leading
// one is 1.
template <typename L, int N>
static inline __attribute__((always_inline)) typename L::Vec weighted(
    const float* d, ptrdiff_t step, int count, const typename L::Vec* product) {
    using Vec = typename L::Vec;
    Vec sum = L::load(d + (N - 1) * 2 * step, count);
#pragma GCC unroll 4
    for (int i = 0; i < N - 1; ++i) sum = L::fma(product[i], L::load(d + i * 2 * step, count), sum);
    return sum;
}

template <typename L>
static void winograd_pair_in(const WinogradInArgs& a) {
    using Vec = typename L::Vec;
    const ptrdiff_t step = a.dilation * a.x_row;
    const Vec p = L::set(static_cast<float>(kWinogradPoints[a.part]));
    Vec product[3];
    for (int i = 0; i < 3; ++i)
        product[i] = L::set(static_cast<float>(kWinogradProducts[a.part].of[i]));
    for (int t = 0; t < a.n_tiles; ++t) {
        const float* d = a.x + a.tiles[t].row * a.x_row;
        const ptrdiff_t at = ptrdiff_t{t} * a.channels;
        for (int c = 0; c < a.channels; c += L::kWidth) {
            const int count = a.channels - c;
            const Vec odd = weighted<L, 4>(d + step + c, step, count, product);
            const Vec even = weighted<L, 4>(d + 2 * step + c, step, count, product);
            L::store(a.u[0] + at + c, count, L::fma(p, odd, even));
            L::store(a.u[1] + at + c, count, L::fnma(p, odd, even));
        }
    }
}

template <typename L>
static void winograd_ends_in(const WinogradInArgs& a) {
    using Vec = typename L::Vec;
    const ptrdiff_t step = a.dilation * a.x_row;
    Vec product[4];
    for (int i = 0; i < 4; ++i)
        product[i] = L::set(static_cast<float>(kWinogradProducts[a.part].of[i]));
    for (int t = 0; t < a.n_tiles; ++t) {
        const float* d = a.x + a.tiles[t].row * a.x_row;
        const ptrdiff_t at = ptrdiff_t{t} * a.channels;
        for (int c = 0; c < a.channels; c += L::kWidth) {
            const int count = a.channels - c;
            L::store(a.u[0] + at + c, count, weighted<L, 5>(d + c, step, count, product));
            L::store(a.u[1] + at + c, count, weighted<L, 5>(d + step + c, step, count, product));
        }
    }
}

template <typename L>
static void winograd_in_lanes(const WinogradInArgs& a) {
    if (a.part < kWinogradPairs)
        winograd_pair_in<L>(a);
    else
        winograd_ends_in<L>(a);
}

template <typename L>
static void winograd_out_lanes(const WinogradOutArgs& a) {
    using Vec = typename L::Vec;
    Vec power[kWinogradPairs][kWinogradOut];
    for (int k = 0; k < kWinogradPairs; ++k) {
        float p = 1;
        for (int i = 0; i < kWinogradOut; ++i) {
            power[k][i] = L::set(p);
            p *= static_cast<float>(kWinogradPoints[k]);
        }
    }
    for (int t = 0; t < a.n_tiles; ++t) {
        const WinogradTile tile = a.tiles[t];
        for (int o = 0; o < a.out.n; o += L::kWidth) {
            const int count = a.out.n - o;
            const float* m = a.m + ptrdiff_t{t} * a.out.n + o;
            Vec v[kWinogradOut] = {L::load(m + (kWinogradIn - 2) * a.plane, count), L::set(0),
                                   L::set(0), L::load(m + (kWinogradIn - 1) * a.plane, count)};
#pragma GCC unroll 4
            for (int k = 0; k < kWinogradPairs; ++k) {
                const Vec plus = L::load(m + 2 * k * a.plane, count);
                const Vec minus = L::load(m + (2 * k + 1) * a.plane, count);
                const Vec sum = L::add(plus, minus);
                const Vec difference = L::sub(plus, minus);
#pragma GCC unroll 4
                for (int i = 0; i < kWinogradOut; ++i)
                    v[i] = L::fma(power[k][i], i % 2 ? difference : sum, v[i]);
            }
            for (int i = tile.skip; i < kWinogradOut; ++i)
                L::finish(a.out, tile.row + i * a.dilation, o, count, v[i]);
        }
    }
}

}  // namespace qt
