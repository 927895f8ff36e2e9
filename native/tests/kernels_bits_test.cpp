// The products with 5- and 6-bit weights against plain sums over all lengths and misalignments, at
// the largest values, and row by row.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "half.h"
#include "kernel_checks.h"

using namespace qt;

namespace {

struct Format {
    int bits;
    int super_bytes;
    void (*Kernels::*gemm)(const GemmQ8Args&);
};
constexpr Format kFormats[] = {{5, kQ5SuperBytes, &Kernels::gemm_q5},
                               {6, kQ6SuperBytes, &Kernels::gemm_q6}};

// Weights in the layout that kernels.h describes, with the plain numbers beside them; what a kernel
// reads begins `shift` bytes into its allocation, which ends where the weights do.
struct Problem {
    const Format& format;
    int rows, n, k, shift;
    std::vector<int> q;        // [n][k], 0 .. 2^bits - 1
    std::vector<float> scale;  // [n][blocks]
    std::vector<uint8_t> w;
    std::vector<int8_t> x;
    std::vector<float> xs, bias, residual;

    Problem(const Format& f, int rows_, int n_, int k_, int shift_, int fixed = -1)
        : format(f), rows(rows_), n(n_), k(k_), shift(shift_) {
        std::mt19937 rng(static_cast<unsigned>(k * 31 + n));
        std::uniform_int_distribution<int> value(0, (1 << f.bits) - 1);
        std::normal_distribution<float> normal(0, 1);
        for (int i = 0; i < n * k; ++i) q.push_back(fixed >= 0 ? fixed : value(rng));
        for (int i = 0; i < n * q8_blocks(k); ++i)
            scale.push_back(half_to_float(float_to_half(0.01F * normal(rng))));
        pack();
        x.resize(static_cast<size_t>(shift + rows * q8_row_bytes(k)));
        xs.resize(static_cast<size_t>(rows * q8_scales(k)));
        for (int r = 0; r < rows; ++r) {
            std::vector<float> row;
            for (int i = 0; i < k; ++i)
                row.push_back(fixed >= 0 ? (r % 2 ? -1.0F : 1.0F) : normal(rng));
            scalar_kernels().quantize_q8(row.data(), k, x.data() + shift + r * q8_row_bytes(k),
                                         xs.data() + r * q8_scales(k));
        }
        for (int i = 0; i < n; ++i) bias.push_back(normal(rng));
        for (int i = 0; i < rows * n; ++i) residual.push_back(normal(rng));
    }

    void pack() {
        const int groups = (n + kQ8Rows - 1) / kQ8Rows;
        const int high = format.bits - 4;  // bits per weight in the plane behind the nibbles
        w.resize(static_cast<size_t>(shift + groups * q8_supers(k) * format.super_bytes));
        for (int o = 0; o < n; ++o)
            for (int i = 0; i < k; ++i) {
                const int b = i / 32;
                const int four = i % 32 / 4;
                uint8_t* super =
                    w.data() + shift + (o / kQ8Rows * q8_supers(k) + b / 4) * format.super_bytes;
                const uint16_t half =
                    float_to_half(scale[static_cast<size_t>(o * q8_blocks(k) + b)]);
                std::memcpy(super + (b % 4 * kQ8Rows + o % kQ8Rows) * 2, &half, 2);
                uint8_t* block = super + 64 + b % 4 * (128 + 32 * high);
                const int at = o % kQ8Rows * 4 + i % 4;
                const int value = q[static_cast<size_t>(o * k + i)];
                block[four % 4 * 32 + at] |=
                    static_cast<uint8_t>((value & 15) << (four < 4 ? 0 : 4));
                if (high == 1)
                    block[128 + at] |= static_cast<uint8_t>((value >> 4) << four);
                else
                    block[128 + four / 4 * 32 + at] |=
                        static_cast<uint8_t>((value >> 4) << (four % 4 * 2));
            }
    }

    GemmQ8Args args(int r, int count, float* y, bool extras) const {
        return {.x = x.data() + shift + r * q8_row_bytes(k),
                .x_row = q8_row_bytes(k),
                .xs = xs.data() + r * q8_scales(k),
                .xs_row = q8_scales(k),
                .w = w.data() + shift,
                .k = k,
                .rows = count,
                .n = n,
                .bias = extras ? bias.data() : nullptr,
                .residual = extras ? residual.data() + r * n : nullptr,
                .residual_row = n,
                .y = y,
                .y_row = n};
    }

    std::vector<float> run(const Kernels& kernels, bool extras) const {
        std::vector<float> y(static_cast<size_t>(rows * n) + 16, kGuard);
        (kernels.*format.gemm)(args(0, rows, y.data() + 8, extras));
        CHECK(std::count(y.begin(), y.begin() + 8, kGuard) == 8);
        CHECK(std::count(y.end() - 8, y.end(), kGuard) == 8);
        return {y.begin() + 8, y.end() - 8};
    }

    // From the plain numbers; `size` is the sum of magnitudes, which a rounding error scales with.
    double expected(int r, int o, bool extras, double* size) const {
        const int zero = 1 << (format.bits - 1);
        double sum = 0;
        *size = 0;
        for (int i = 0; i < k; ++i) {
            const int b = i / 32;
            const double v = double{xs[static_cast<size_t>(r * q8_scales(k) + b)]} *
                             x[static_cast<size_t>(shift + r * q8_row_bytes(k) + b * 64 + i % 32)] *
                             double{scale[static_cast<size_t>(o * q8_blocks(k) + b)]} *
                             (q[static_cast<size_t>(o * k + i)] - zero);
            sum += v;
            *size += std::fabs(v);
        }
        if (!extras) return sum;
        const auto at = static_cast<size_t>(r * n + o);
        *size += 4;
        return sum + double{bias[static_cast<size_t>(o)]} + double{residual[at]};
    }

    void check(const Kernels& kernels, bool extras) const {
        const std::vector<float> y = run(kernels, extras);
        for (int r = 0; r < rows; ++r)
            for (int o = 0; o < n; ++o) {
                double size = 0;
                const double want = expected(r, o, extras, &size);
                CHECK_NEAR(y[static_cast<size_t>(r * n + o)], want, 1e-6 * size + 1e-9);
            }
    }
};

}  // namespace

TEST(products_over_all_lengths) {
    for (const Format& format : kFormats)
        for (int k = 1; k <= 300; ++k) {
            const Problem p(format, 1 + k % 11, 1 + k % 33, k, 0);
            for (const Kernels* table : all_tables()) p.check(*table, k % 2);
        }
}

TEST(products_at_all_misalignments) {
    for (const Format& format : kFormats)
        for (int shift = 0; shift < 32; ++shift) {
            const Problem p(format, 1 + shift % 6, 9 + shift % 8, 32 * (1 + shift % 5) + 3, shift);
            for (const Kernels* table : all_tables()) p.check(*table, shift % 2);
        }
}

TEST(nothing_saturates_at_the_largest_values) {
    // Every activation +-127, every weight at an end of its range: 16-bit sums are at their
    // largest.
    for (const Format& format : kFormats)
        for (const int value : {0, (1 << format.bits) - 1}) {
            const Problem p(format, 5, 16, 256, 0, value);
            for (const Kernels* table : all_tables()) p.check(*table, false);
        }
}

TEST(a_row_does_not_depend_on_its_neighbours) {
    for (const Format& format : kFormats)
        for (const Kernels* table : all_tables()) {
            const Problem p(format, 11, 24, 300, 0);
            const std::vector<float> all = p.run(*table, true);
            for (int r = 0; r < p.rows; ++r) {
                float y[24];
                (table->*format.gemm)(p.args(r, 1, y, true));
                for (int o = 0; o < p.n; ++o) CHECK(y[o] == all[static_cast<size_t>(r * p.n + o)]);
            }
        }
}
