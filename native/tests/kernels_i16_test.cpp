// The int16 kernels against the scalar ones, which are exact in their integer part: over all
// lengths, with no write beyond the ranges, and at the largest values an int32 sum can take.
#include "kernel_checks.h"

using namespace qt;

namespace {

struct Problem {
    int rows, n, c_in, taps, dilation;
    std::vector<int16_t> x, w;
    std::vector<float> x_scale, w_scale, bias;

    Problem(int rows_, int n_, int c_in_, int taps_, int dilation_, int seed)
        : rows(rows_), n(n_), c_in(c_in_), taps(taps_), dilation(dilation_) {
        std::mt19937 rng(static_cast<unsigned>(seed));
        std::uniform_int_distribution<int> value(-kI16Max, kI16Max);
        std::uniform_real_distribution<float> scale(1e-4F, 1e-3F);
        const int in_rows = rows + (taps - 1) * dilation;
        x.resize(static_cast<size_t>(in_rows * c_in));
        w.resize(static_cast<size_t>((n + kPanel - 1) / kPanel * kPanel * taps * c_in));
        for (int16_t& v : x) v = static_cast<int16_t>(value(rng));
        for (int16_t& v : w) v = static_cast<int16_t>(value(rng));
        for (int i = 0; i < in_rows; ++i) x_scale.push_back(scale(rng));
        for (int i = 0; i < n; ++i) w_scale.push_back(scale(rng));
        for (int i = 0; i < n; ++i) bias.push_back(scale(rng));
    }

    std::vector<float> run(void (*gemm)(const GemmI16Args&), int r0, int r1) const {
        std::vector<float> y(static_cast<size_t>((r1 - r0) * n) + 8, kGuard);
        GemmI16Args g;
        g.x = x.data() + static_cast<ptrdiff_t>(r0) * c_in;
        g.x_row = c_in;
        g.x_tap = static_cast<ptrdiff_t>(dilation) * c_in;
        g.x_scale = x_scale.data() + r0;
        g.dilation = dilation;
        g.taps = taps;
        g.c_in = c_in;
        g.w = w.data();
        g.w_scale = w_scale.data();
        g.out.rows = r1 - r0;
        g.out.n = n;
        g.out.bias = bias.data();
        g.out.y = y.data();
        g.out.y_row = n;
        gemm(g);
        for (size_t i = y.size() - 8; i < y.size(); ++i) CHECK(y[i] == kGuard);
        y.resize(y.size() - 8);
        return y;
    }
};

void check_against_scalar(const Kernels& fast, const Problem& p) {
    const std::vector<float> got = p.run(fast.gemm_i16, 0, p.rows);
    const std::vector<float> want = p.run(scalar_kernels().gemm_i16, 0, p.rows);
    float largest = 1e-6F;
    for (const float v : want) largest = std::max(largest, std::fabs(v));
    for (size_t i = 0; i < want.size(); ++i) CHECK_NEAR(got[i], want[i], 1e-5 * largest);
    CHECK(got == p.run(same_bits(fast).gemm_i16, 0, p.rows));
}

}  // namespace

TEST(gemm_i16_over_lengths) {
    for (const Kernels* fast : fast_tables()) {
        for (int c = 2; c <= 300; c += 2)
            check_against_scalar(*fast, Problem(1 + c % 7, 1 + c % 37, c, 1, 1, c));
        for (int rows = 1; rows <= 20; ++rows)
            check_against_scalar(*fast, Problem(rows, 20, 24, 7, 1 + rows % 9, rows));
        for (const int rows : {191, 192, 193, 200})
            check_against_scalar(*fast, Problem(rows, 17, 130, 2, 3, rows));
    }
}

TEST(gemm_i16_at_its_largest_values) {
    // A whole run of equal extremes: 128 * 4095^2 is 2^31 - 1 less a little.
    for (const Kernels* fast : fast_tables())
        for (const int sign : {1, -1}) {
            Problem p(6, 16, 2 * kI16Run, 1, 1, 1);
            std::fill(p.x.begin(), p.x.end(), static_cast<int16_t>(kI16Max));
            std::fill(p.w.begin(), p.w.end(), static_cast<int16_t>(sign * kI16Max));
            const std::vector<float> y = p.run(fast->gemm_i16, 0, 6);
            for (int r = 0; r < 6; ++r)
                for (int o = 0; o < 16; ++o) {
                    const double sum = 2.0 * kI16Run * kI16Max * kI16Max * sign;
                    const double want = sum * p.x_scale[static_cast<size_t>(r)] *
                                            p.w_scale[static_cast<size_t>(o)] +
                                        p.bias[static_cast<size_t>(o)];
                    CHECK_NEAR(y[static_cast<size_t>(r * 16 + o)], want, 1e-5 * std::fabs(want));
                }
        }
}

TEST(gemm_i16_rows_are_independent) {
    for (const Kernels* table : all_tables()) {
        const Problem p(200, 20, 140, 3, 2, 9);
        const std::vector<float> all = p.run(table->gemm_i16, 0, p.rows);
        for (int r = 0, count = 1; r < p.rows; r += count, count = count % 13 + 1) {
            const int end = std::min(p.rows, r + count);
            const std::vector<float> part = p.run(table->gemm_i16, r, end);
            CHECK(std::equal(part.begin(), part.end(), all.begin() + r * p.n));
        }
    }
}

TEST(quantize_i16) {
    std::mt19937 rng(3);
    std::normal_distribution<float> normal(0, 2);
    for (const Kernels* table : all_tables())
        for (int n = 1; n <= 300; ++n) {
            std::vector<float> x(static_cast<size_t>(n));
            for (float& v : x) v = n % 50 == 0 ? 0 : normal(rng);
            std::vector<int16_t> q(x.size() + 4, 77);
            float scale = -1;
            table->quantize_i16(x.data(), n, q.data(), &scale);
            float largest = 0;
            for (const float v : x) largest = std::max(largest, std::fabs(v));
            CHECK_NEAR(scale * kI16Max, largest, 1e-6 * largest);
            for (int i = 0; i < n; ++i) {
                const auto at = static_cast<size_t>(i);
                CHECK_NEAR(q[at] * scale, x[at], 0.5001 * scale);
            }
            for (int i = n; i < n + 4; ++i) CHECK(q[static_cast<size_t>(i)] == 77);
        }
}
