// Minimal filtering: which rows its tiles make, and that it is the convolution.
#include "winograd.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "kernel_checks.h"

using namespace qt;

namespace {

std::vector<float> noise(size_t n, unsigned seed) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal;
    std::vector<float> v(n);
    for (float& x : v) x = normal(rng);
    return v;
}

struct Problem {
    int rows, channels, n, dilation;
    std::vector<float> x, w, bias;

    Problem(int rows_, int channels_, int n_, int dilation_)
        : rows(rows_),
          channels(channels_),
          n(n_),
          dilation(dilation_),
          x(noise(static_cast<size_t>((rows_ + 6 * dilation_) * channels_), 1)),
          w(noise(static_cast<size_t>(n_ * channels_ * kWinogradTaps), 2)),
          bias(noise(static_cast<size_t>(n_), 3)) {}

    double direct(int r, int o) const {
        double sum = bias[static_cast<size_t>(o)];
        for (int j = 0; j < kWinogradTaps; ++j)
            for (int c = 0; c < channels; ++c)
                sum += double{x[static_cast<size_t>((r + j * dilation) * channels + c)]} *
                       w[static_cast<size_t>((o * channels + c) * kWinogradTaps + j)];
        return sum;
    }

    WinogradConv conv(Pool& pool) const {
        WinogradConv made = pack_winograd(pool, w.data(), n, channels, dilation);
        made.layer.bias = bias;
        return made;
    }
};

// y [rows, n] from pieces of `piece` rows.
std::vector<float> filter(const Kernels& kernels, const Problem& p, int piece) {
    Pool pool(1);
    const WinogradConv conv = p.conv(pool);
    const auto size = static_cast<size_t>(p.rows * p.n);
    std::vector<float> y(size + 8, kGuard);
    const LayerIo io{.x = p.x.data(), .rows = p.rows, .y = y.data()};
    for (int r = 0; r < p.rows; r += piece)
        run_part(kernels, conv, io, r, std::min(p.rows, r + piece), 0, p.n);
    for (size_t i = size; i < y.size(); ++i) CHECK(y[i] == kGuard);
    y.resize(size);
    return y;
}

}  // namespace

TEST(tiles_make_every_row_once_and_stay_inside) {
    for (const int dilation : {1, 3, 9})
        for (int rows = kWinogradOut * dilation; rows < 200; ++rows) {
            std::vector<int> made(static_cast<size_t>(rows));
            for (const WinogradTile& tile : winograd_tiles(0, rows, dilation)) {
                CHECK(tile.row >= 0);
                CHECK(tile.skip >= 0 && tile.skip < kWinogradOut);
                for (int i = tile.skip; i < kWinogradOut; ++i)
                    ++made[static_cast<size_t>(tile.row + i * dilation)];
            }
            CHECK(std::all_of(made.begin(), made.end(), [](int n) { return n == 1; }));
        }
}

TEST(tiles_of_a_later_piece_reach_back_at_most_three_steps) {
    for (const int dilation : {1, 3, 9})
        for (int rows = 1; rows < 60; ++rows)
            for (const WinogradTile& tile : winograd_tiles(144, 144 + rows, dilation))
                CHECK(tile.row >= 144 - 3 * dilation);
}

TEST(whole_groups_of_rows_waste_nothing) {
    CHECK(winograd_tiles(0, 144, 1).size() == 36);
    CHECK(winograd_tiles(0, 144, 3).size() == 36);
    CHECK(winograd_tiles(0, 144, 9).size() == 36);
}

TEST(it_is_the_convolution) {
    for (const Kernels* kernels : all_tables())
        for (const int dilation : {1, 3, 9})
            for (const int channels : {1, 5, 8, 24, 33}) {
                const Problem p(50, channels, channels + 2, dilation);
                const std::vector<float> y = filter(*kernels, p, 50);
                double signal = 0;
                double error = 0;
                for (int r = 0; r < p.rows; ++r)
                    for (int o = 0; o < p.n; ++o) {
                        const double want = p.direct(r, o);
                        const double off = y[static_cast<size_t>(r * p.n + o)] - want;
                        signal += want * want;
                        error += off * off;
                    }
                // Measured: 1e-6 to 3e-6 of the signal; a wrong coefficient is far above.
                CHECK(error < signal * 1e-10);
            }
}

TEST(pieces_cover_what_one_piece_does) {
    for (const Kernels* kernels : all_tables())
        for (const int dilation : {1, 3, 9}) {
            const Problem p(180, 16, 16, dilation);
            const std::vector<float> whole = filter(*kernels, p, 180);
            const std::vector<float> parts = filter(*kernels, p, 144);
            for (size_t i = 0; i < whole.size(); ++i) CHECK_NEAR(parts[i], whole[i], 1e-3);
        }
}

TEST(everything_that_follows_a_sum_follows_here_too) {
    for (const Kernels* kernels : all_tables()) {
        Pool pool(2);
        const Problem p(72, 20, 20, 3);
        WinogradConv conv = p.conv(pool);
        const auto n = static_cast<size_t>(p.n);
        conv.layer.scale = noise(n, 4);
        conv.layer.act = Act::snake;
        conv.layer.act_a = noise(n, 5);
        conv.layer.act_b = noise(n, 6);
        const std::vector<float> residual = noise(n * 72, 7);
        std::vector<float> y(n * 72), z(n * 72);
        // Two frames of 36 rows, in parallel.
        run(pool, *kernels, conv,
            {.x = p.x.data(),
             .rows = 72,
             .y = y.data(),
             .z = z.data(),
             .residual = residual.data()},
            36);
        for (int r = 0; r < 72; ++r)
            for (size_t o = 0; o < n; ++o) {
                const size_t at = static_cast<size_t>(r) * n + o;
                const double v = p.direct(r, static_cast<int>(o)) * conv.layer.scale[o];
                CHECK_NEAR(y[at], v + residual[at], 1e-3);
                const double s = std::sin(double{conv.layer.act_a[o]} * y[at]);
                CHECK_NEAR(z[at], y[at] + conv.layer.act_b[o] * s * s, 1e-3);
            }
    }
}
