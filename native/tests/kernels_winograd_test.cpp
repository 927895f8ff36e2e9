// The transforms of minimal filtering against the scalar ones over all widths and misalignments.
// winograd_test.cpp holds the whole against a convolution.
#include "kernel_checks.h"

using namespace qt;

namespace {

// Two rows of tiles, the second of which passes over two outputs.
constexpr WinogradTile kTiles[] = {{0, 0}, {1, 2}, {5, 0}};
constexpr int kTileCount = 3;

int input_rows(int dilation) {
    return kTiles[kTileCount - 1].row + (kWinogradIn - 1) * dilation + 1;
}

}  // namespace

TEST(winograd_in) {
    over_lengths([](const Kernels& fast, int n, int shift) {
        const int dilation = 1 + n % 3;
        const Row x(input_rows(dilation) * n, shift);
        for (int part = 0; part <= kWinogradPairs; ++part) {
            Out got[2] = {Out(kTileCount * n), Out(kTileCount * n)};
            Out want[2] = {Out(kTileCount * n), Out(kTileCount * n)};
            WinogradInArgs a;
            a.x = x.get();
            a.x_row = n;
            a.dilation = dilation;
            a.tiles = kTiles;
            a.n_tiles = kTileCount;
            a.channels = n;
            a.part = part;
            for (int i = 0; i < 2; ++i) a.u[i] = got[i].get();
            fast.winograd_in(a);
            for (int i = 0; i < 2; ++i) a.u[i] = want[i].get();
            scalar_kernels().winograd_in(a);
            for (int i = 0; i < 2; ++i) check_close(got[i], want[i], 1e-5, 2e-4);
        }
    });
}

TEST(winograd_out) {
    over_lengths([](const Kernels& fast, int n, int shift) {
        const int dilation = 1 + n % 3;
        const int rows = kTiles[kTileCount - 1].row + (kWinogradOut - 1) * dilation + 1;
        const Row m(kWinogradIn * kTileCount * n, shift);
        const Row bias(n, shift), scale(n, shift), residual(rows * n, shift), b(n, shift);
        Out got[2] = {Out(rows * n), Out(rows * n)};
        Out want[2] = {Out(rows * n), Out(rows * n)};
        WinogradOutArgs a;
        a.m = m.get();
        a.plane = ptrdiff_t{kTileCount} * n;
        a.tiles = kTiles;
        a.n_tiles = kTileCount;
        a.dilation = dilation;
        a.out.n = n;
        a.out.bias = bias.get();
        a.out.scale = scale.get();
        a.out.residual = residual.get();
        a.out.residual_row = a.out.y_row = a.out.z_row = n;
        a.out.act = Act::snake;
        a.out.act_a = scale.get();
        a.out.act_b = b.get();
        a.out.y = got[0].get();
        a.out.z = got[1].get();
        fast.winograd_out(a);
        a.out.y = want[0].get();
        a.out.z = want[1].get();
        scalar_kernels().winograd_out(a);
        // Rows that no tile makes are still the guard value in both.
        for (int i = 0; i < 2; ++i) check_close(got[i], want[i], 1e-4, 1e-3);
    });
}
