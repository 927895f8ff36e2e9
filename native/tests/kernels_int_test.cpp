// The products of int8 with int8 and 4-bit weights against the scalar ones, which are exact in
// their integer part, and what makes int8 of floats.
#include "half.h"
#include "kernel_checks.h"

using namespace qt;

TEST(quantising_is_identical) {
    over_lengths([](const Kernels& fast, int n, int shift) {
        const Row x(n, shift, 3);
        const auto bytes = static_cast<size_t>(q8_row_bytes(n));
        const auto blocks = static_cast<size_t>(q8_scales(n));
        std::vector<int8_t> got(bytes), want(bytes);
        std::vector<float> got_scales(blocks), want_scales(blocks);
        fast.quantize_q8(x.get(), n, got.data(), got_scales.data());
        scalar_kernels().quantize_q8(x.get(), n, want.data(), want_scales.data());
        CHECK(got == want);
        CHECK(got_scales == want_scales);
    });
}

namespace {

struct Q8Problem {
    int rows, n, k;
    std::vector<uint8_t> w;
    std::vector<int8_t> x;
    std::vector<float> xs;
    std::vector<float> residual, bias;
};

Q8Problem q8_problem(int rows, int n, int k, int super_bytes = kQ8SuperBytes) {
    Q8Problem p{rows, n, k, {}, {}, {}, {}, {}};
    const int groups = (n + kQ8Rows - 1) / kQ8Rows;
    std::uniform_int_distribution<int> byte(-127, 127);
    for (int s = 0; s < groups * q8_supers(k); ++s) {
        for (int i = 0; i < 32; ++i) {
            const uint16_t scale =
                float_to_half(std::fabs(std::normal_distribution<float>(0, 0.01F)(rng)));
            p.w.push_back(static_cast<uint8_t>(scale & 255));
            p.w.push_back(static_cast<uint8_t>(scale >> 8));
        }
        for (int i = 64; i < super_bytes; ++i) p.w.push_back(static_cast<uint8_t>(byte(rng)));
    }
    p.x.resize(static_cast<size_t>(rows * q8_row_bytes(k)));
    p.xs.resize(static_cast<size_t>(rows * q8_scales(k)));
    for (int r = 0; r < rows; ++r) {
        const Row x(k, r % 8);
        scalar_kernels().quantize_q8(x.get(), k, p.x.data() + r * q8_row_bytes(k),
                                     p.xs.data() + r * q8_scales(k));
    }
    for (int i = 0; i < rows * n; ++i)
        p.residual.push_back(std::normal_distribution<float>(0, 1)(rng));
    for (int i = 0; i < n; ++i) p.bias.push_back(std::normal_distribution<float>(0, 1)(rng));
    return p;
}

GemmQ8Args q8_args(const Q8Problem& p, bool extras, float* y) {
    return {.x = p.x.data(),
            .x_row = q8_row_bytes(p.k),
            .xs = p.xs.data(),
            .xs_row = q8_scales(p.k),
            .w = p.w.data(),
            .k = p.k,
            .rows = p.rows,
            .n = p.n,
            .bias = extras ? p.bias.data() : nullptr,
            .residual = extras ? p.residual.data() : nullptr,
            .residual_row = p.n,
            .y = y,
            .y_row = p.n};
}

}  // namespace

TEST(gemm_q8) {
    for (const Kernels* fast : fast_tables())
        for (int i = 1; i <= 300; ++i) {
            const Q8Problem p = q8_problem(1 + i % 11, 1 + i % 33, i);
            Out got(p.rows * p.n);
            Out want(p.rows * p.n);
            fast->gemm_q8(q8_args(p, i % 2, got.get()));
            scalar_kernels().gemm_q8(q8_args(p, i % 2, want.get()));
            check_close(got, want, 1e-5, 1e-5);
            same_bits(*fast).gemm_q8(q8_args(p, i % 2, want.get()));
            check_same(got, want);
        }
}

TEST(gemm_q4) {
    for (const Kernels* fast : fast_tables())
        for (int i = 1; i <= 300; ++i) {
            const Q8Problem p = q8_problem(1 + i % 11, 1 + i % 33, i, kQ4SuperBytes);
            Out got(p.rows * p.n);
            Out want(p.rows * p.n);
            fast->gemm_q4(q8_args(p, i % 2, got.get()));
            scalar_kernels().gemm_q4(q8_args(p, i % 2, want.get()));
            check_close(got, want, 1e-5, 1e-5);
            same_bits(*fast).gemm_q4(q8_args(p, i % 2, want.get()));
            check_same(got, want);
        }
}

TEST(gemm_q4_at_its_largest_values) {
    // Every nibble 15 and every activation +-127: the 16-bit sums must not saturate.
    for (const Kernels* fast : fast_tables())
        for (const float sign : {1.0F, -1.0F}) {
            Q8Problem p = q8_problem(5, 16, 256, kQ4SuperBytes);
            for (size_t i = 0; i < p.w.size(); i += kQ4SuperBytes)
                std::fill_n(p.w.begin() + static_cast<ptrdiff_t>(i) + 64, 512, uint8_t{255});
            const std::vector<float> x(256, sign);
            for (int r = 0; r < 5; ++r)
                scalar_kernels().quantize_q8(x.data(), 256, p.x.data() + r * q8_row_bytes(256),
                                             p.xs.data() + r * q8_scales(256));
            Out got(5 * 16);
            Out want(5 * 16);
            fast->gemm_q4(q8_args(p, false, got.get()));
            scalar_kernels().gemm_q4(q8_args(p, false, want.get()));
            check_close(got, want, 1e-6, 1e-5);
        }
}

TEST(gemm_q8_at_its_largest_values) {
    // All weights and activations at +-127: the 16-bit pair sums must not saturate.
    for (const Kernels* fast : fast_tables())
        for (const int sign : {1, -1}) {
            Q8Problem p = q8_problem(5, 16, 256);
            for (size_t i = 0; i < p.w.size(); i += kQ8SuperBytes)
                std::fill_n(p.w.begin() + static_cast<ptrdiff_t>(i) + 64, 1024,
                            static_cast<uint8_t>(static_cast<int8_t>(127 * sign)));
            const Row ones(256, 0, 0);
            std::vector<float> x(256, 1.0F);
            for (int r = 0; r < 5; ++r)
                scalar_kernels().quantize_q8(x.data(), 256, p.x.data() + r * q8_row_bytes(256),
                                             p.xs.data() + r * q8_scales(256));
            Out got(5 * 16);
            Out want(5 * 16);
            fast->gemm_q8(q8_args(p, false, got.get()));
            scalar_kernels().gemm_q8(q8_args(p, false, want.get()));
            check_close(got, want, 1e-6, 1e-5);
        }
}

namespace {

// Row r, outputs from o on, of p.
GemmQ8Args part_of(const Q8Problem& p, int super_bytes, int r, int o, float* y) {
    GemmQ8Args part = q8_args(p, false, y);
    part.x += r * part.x_row;
    part.xs += r * part.xs_row;
    part.w += static_cast<ptrdiff_t>(o / kQ8Rows) * q8_supers(p.k) * super_bytes;
    part.rows = 1;
    part.n -= o;
    return part;
}

void check_independence(void (*gemm)(const GemmQ8Args&), int super_bytes) {
    const Q8Problem p = q8_problem(19, 28, 300, super_bytes);
    Out all(p.rows * p.n);
    gemm(q8_args(p, false, all.get()));
    for (int r = 0; r < p.rows; ++r)
        for (int o = 0; o < p.n; o += kQ8Rows)
            for (const int count : {p.n - o, std::min(kQ8Rows, p.n - o)}) {
                Out y(count);
                GemmQ8Args part = part_of(p, super_bytes, r, o, y.get());
                part.n = count;
                gemm(part);
                for (int i = 0; i < count; ++i) CHECK(y[i] == all[r * p.n + o + i]);
                CHECK(y.intact());
            }
}

}  // namespace

TEST(a_q8_sum_does_not_depend_on_its_neighbours) {
    for (const Kernels* table : all_tables()) check_independence(table->gemm_q8, kQ8SuperBytes);
}

TEST(a_q4_sum_does_not_depend_on_its_neighbours) {
    for (const Kernels* table : all_tables()) check_independence(table->gemm_q4, kQ4SuperBytes);
}
