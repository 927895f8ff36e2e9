// The products of floats with weights of every type against the scalar ones: all lengths, all
// misalignments, no byte outside the ranges, and the same bits whatever is computed together.
#include "half.h"
#include "kernel_checks.h"

using namespace qt;

namespace {

struct Problem {
    int rows, n, c_in, taps, dilation;
};

std::vector<uint16_t> halves(const std::vector<float>& w, bool bf16) {
    std::vector<uint16_t> out;
    for (const float v : w)
        out.push_back(bf16 ? static_cast<uint16_t>(float_to_bits(v) >> 16) : float_to_half(v));
    return out;
}

// Random int8 weights with scales of about 1/400, laid out for gemm_w8.
std::vector<uint8_t> w8_weights(int n, int k) {
    const int blocks = (n + kPanel - 1) / kPanel * ((k + kW8Block - 1) / kW8Block);
    std::vector<uint8_t> w(static_cast<size_t>(blocks) * kW8BlockBytes);
    std::uniform_int_distribution<int> byte(-127, 127);
    for (uint8_t& v : w) v = static_cast<uint8_t>(byte(rng));
    for (int b = 0; b < blocks; ++b)
        for (int o = 0; o < kPanel; ++o) {
            const uint16_t scale = float_to_half(static_cast<float>(byte(rng) + 300) / 1e5F);
            __builtin_memcpy(w.data() + static_cast<ptrdiff_t>(b) * kW8BlockBytes + o * 2, &scale,
                             2);
        }
    return w;
}

void check_gemm(const Kernels& fast, const Problem& p, int variant) {
    const int k = p.c_in * p.taps;
    const int panels = (p.n + kPanel - 1) / kPanel;
    const Row x((p.rows + (p.taps - 1) * p.dilation) * p.c_in, variant % 8);
    std::vector<float> w(static_cast<size_t>(panels) * k * kPanel);
    std::normal_distribution<float> normal(0, 0.3F);
    for (float& v : w) v = normal(rng);
    const Row bias(p.n, 1), scale(p.n, 2), a(p.n, 3), b(p.n, 4), residual(p.n * p.rows, 5);
    const auto h16 = halves(w, false);
    const auto b16 = halves(w, true);
    const auto w8 = w8_weights(p.n, k);
    GemmArgs g;
    g.x = x.get();
    g.x_row = p.c_in;
    g.x_tap = static_cast<ptrdiff_t>(p.dilation) * p.c_in;
    g.taps = p.taps;
    g.c_in = p.c_in;
    g.rows = p.rows;
    g.n = p.n;
    g.bias = variant & 1 ? bias.get() : nullptr;
    g.scale = variant & 2 ? scale.get() : nullptr;
    g.residual = variant & 4 ? residual.get() : nullptr;
    g.residual_row = p.n;
    g.y_row = g.z_row = p.n;
    g.act = variant & 8 ? Act::snake : Act::gelu;
    g.act_a = a.get();
    g.act_b = b.get();
    using Gemm = void (*)(const GemmArgs&);
    const Kernels& slow = scalar_kernels();
    const Kernels& same = same_bits(fast);
    const struct {
        Gemm fast, slow, same;
        const void* w;
    } types[] = {{fast.gemm_f32, slow.gemm_f32, same.gemm_f32, w.data()},
                 {fast.gemm_f16, slow.gemm_f16, same.gemm_f16, h16.data()},
                 {fast.gemm_bf16, slow.gemm_bf16, same.gemm_bf16, b16.data()},
                 {fast.gemm_w8, slow.gemm_w8, same.gemm_w8, w8.data()}};
    for (const auto& type : types) {
        Out y(p.rows * p.n), z(p.rows * p.n), y_want(p.rows * p.n), z_want(p.rows * p.n);
        g.w = type.w;
        g.y = y.get();
        g.z = z.get();
        type.fast(g);
        g.y = y_want.get();
        g.z = z_want.get();
        type.slow(g);
        check_close(y, y_want, 1e-5, 1e-4);
        check_close(z, z_want, 1e-4, 3e-4);
        g.y = y_want.get();
        g.z = z_want.get();
        type.same(g);
        check_same(y, y_want);
        check_same(z, z_want);
    }
}

}  // namespace

TEST(gemm_over_lengths) {
    for (const Kernels* fast : fast_tables()) {
        for (int k = 1; k <= 300; ++k) check_gemm(*fast, {1 + k % 7, 1 + k % 37, k, 1, 1}, k);
        for (int n = 1; n <= 130; ++n) check_gemm(*fast, {1 + n % 2, n, 16, 1, 1}, n);
        for (int rows = 1; rows <= 20; ++rows) check_gemm(*fast, {rows, 40, 24, 1, 1}, rows);
    }
}

TEST(gemm_of_many_rows) {
    for (const Kernels* fast : fast_tables())
        for (const int rows : {31, 191, 192, 193, 199, 385})
            check_gemm(*fast, {rows, 17, 300, 1, 1}, rows);
}

// A row's outputs do not depend on how many rows or outputs are computed with it, to the last bit.
TEST(gemm_rows_are_independent) {
    constexpr int kRows = 205, kOut = 70, kIn = 90, kTaps = 4;  // k = 360 spans chunks
    const Row x((kRows + kTaps - 1) * kIn, 3);
    const auto w8 = w8_weights(kOut, kIn * kTaps);
    const Row w((kOut + kPanel) * kIn * kTaps, 0);
    for (const Kernels* table : all_tables())
        for (const bool narrow : {false, true}) {
            GemmArgs g;
            g.x_row = g.x_tap = kIn;
            g.taps = kTaps;
            g.c_in = kIn;
            g.y_row = kOut;
            const auto gemm = narrow ? table->gemm_w8 : table->gemm_f32;
            const ptrdiff_t panel = narrow ? (kIn * kTaps + kW8Block - 1) / kW8Block * kW8BlockBytes
                                           : kIn * kTaps * kPanel * 4;
            const auto* weights = narrow ? w8.data() : reinterpret_cast<const uint8_t*>(w.get());
            Out all(kRows * kOut);
            Out parts(kRows * kOut);
            g.x = x.get();
            g.w = weights;
            g.y = all.get();
            g.rows = kRows;
            g.n = kOut;
            gemm(g);
            for (int r = 0, count = 1; r < kRows; r += g.rows, count = count % 13 + 1)
                for (int o = 0; o < kOut; o += kPanel) {
                    g.rows = std::min(count, kRows - r);
                    g.x = x.get() + r * kIn;
                    g.w = weights + o / kPanel * panel;
                    g.y = parts.get() + r * kOut + o;
                    g.n = std::min(kPanel, kOut - o);
                    gemm(g);
                }
            for (int i = 0; i < kRows * kOut; ++i) CHECK(all[i] == parts[i]);
        }
}

TEST(gemm_as_convolution) {
    for (const Kernels* fast : fast_tables())
        for (const int dilation : {1, 3, 9})
            for (const int taps : {1, 2, 3, 7})
                check_gemm(*fast, {13, 20, 12, taps, dilation}, taps + dilation);
}

TEST(a_sum_does_not_depend_on_its_neighbours) {
    // One row and one output at a time give the bits that all together give.
    for (const Kernels* table : all_tables()) {
        const int rows = 9, n = 80, k = 75;
        const Row x(rows * k, 3);
        std::vector<float> w(static_cast<size_t>(n) * k);
        for (float& v : w) v = std::normal_distribution<float>(0, 1)(rng);
        Out all(rows * n);
        GemmArgs g;
        g.x = x.get();
        g.x_row = g.c_in = k;
        g.w = w.data();
        g.rows = rows;
        g.n = n;
        g.y = all.get();
        g.y_row = n;
        table->gemm_f32(g);
        for (int r = 0; r < rows; ++r)
            for (int o = 0; o < n; o += kPanel) {
                float part[kPanel];
                g.x = x.get() + r * k;
                g.w = w.data() + static_cast<ptrdiff_t>(o) * k;
                g.rows = 1;
                g.n = kPanel;
                g.y = part;
                table->gemm_f32(g);
                for (int i = 0; i < kPanel; ++i) CHECK(part[i] == all[r * n + o + i]);
            }
    }
}
