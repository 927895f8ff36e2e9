// Every fast kernel against the scalar one: all lengths 1..300, all misalignments, and no byte read
// or written outside the ranges (the sanitizer builds see reads; guard values see writes).
#include "kernels.h"

#include <algorithm>
#include <memory>
#include <random>

#include "check.h"
#include "half.h"

using namespace qt;

namespace {

std::vector<const Kernels*> fast_tables() {
    std::vector<const Kernels*> tables;
    if (avx2_kernels()) tables.push_back(avx2_kernels());
    return tables;
}

std::mt19937 rng(1);

constexpr float kGuard = 12345.5F;

// n floats at a chosen misalignment, exactly as long as they say, so that ASan sees every step
// beyond; `room` guard values behind what is written.
class Row {
  public:
    Row(int n, int shift, float spread = 1)
        : n_(n), data_(static_cast<size_t>(n + shift)), shift_(shift) {
        std::normal_distribution<float> normal(0, spread);
        for (float& v : data_) v = normal(rng);
    }
    float* get() { return data_.data() + shift_; }
    const float* get() const { return data_.data() + shift_; }
    int size() const { return n_; }
    float operator[](int i) const { return get()[i]; }

  private:
    int n_;
    std::vector<float> data_;
    int shift_;
};

// A destination with guard values on both sides.
class Out {
  public:
    explicit Out(int n) : n_(n), data_(static_cast<size_t>(n) + 16, kGuard) {}
    float* get() { return data_.data() + 8; }
    float operator[](int i) const { return data_[static_cast<size_t>(i) + 8]; }
    bool intact() const {
        return std::all_of(data_.begin(), data_.begin() + 8, [](float v) { return v == kGuard; }) &&
               std::all_of(data_.end() - 8, data_.end(), [](float v) { return v == kGuard; });
    }
    int size() const { return n_; }

  private:
    int n_;
    std::vector<float> data_;
};

void check_close(const Out& got, const Out& want, double relative, double absolute) {
    for (int i = 0; i < want.size(); ++i)
        CHECK_NEAR(got[i], want[i], absolute + relative * std::fabs(want[i]));
    CHECK(got.intact());
    CHECK(want.intact());
}

// f(fast table, n, shift) for all lengths and misalignments.
template <typename F>
void over_lengths(const F& f) {
    for (const Kernels* fast : fast_tables())
        for (int n = 1; n <= 300; ++n) f(*fast, n, n % 8);
    for (const Kernels* fast : fast_tables())
        for (int shift = 0; shift < 8; ++shift)
            for (int n : {1, 7, 8, 9, 31, 64, 65}) f(*fast, n, shift);
}

}  // namespace

TEST(activations) {
    const Act acts[] = {Act::none, Act::relu, Act::silu,    Act::gelu,
                        Act::elu,  Act::tanh, Act::sigmoid, Act::snake};
    over_lengths([&](const Kernels& fast, int n, int shift) {
        const Row x(n, shift, 4);
        const Row a(n, 7 - shift, 3);
        const Row b(n, shift);
        for (const Act act : acts) {
            Out got(n);
            Out want(n);
            fast.activate(act, x.get(), a.get(), b.get(), n, got.get());
            scalar_kernels().activate(act, x.get(), a.get(), b.get(), n, want.get());
            check_close(got, want, 3e-6, 2e-6);
        }
    });
}

TEST(activations_at_the_edges) {
    const float values[] = {0, -0.0F, 1e-30F, -1e-30F, 88, -88, 89, -89, 1000, -1000, 1e8F, -1e8F};
    const float one[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    for (const Kernels* fast : fast_tables())
        for (const float v : values)
            for (const Act act :
                 {Act::silu, Act::gelu, Act::elu, Act::tanh, Act::sigmoid, Act::snake}) {
                float got = 0;
                float want = 0;
                fast->activate(act, &v, one, one, 1, &got);
                scalar_kernels().activate(act, &v, one, one, 1, &want);
                CHECK_NEAR(got, want, 3e-6 * std::max(1.0F, std::fabs(want)));
            }
}

TEST(snake_of_large_arguments) {
    for (const Kernels* fast : fast_tables())
        for (float v = 1; v < 9e5F; v *= 1.37F) {
            const float a = 1;
            const float b = 1;
            float got = 0;
            fast->activate(Act::snake, &v, &a, &b, 1, &got);
            const double s = std::sin(static_cast<double>(v));
            CHECK_NEAR(static_cast<double>(got) - static_cast<double>(v), s * s, 1e-6 + v * 1e-7);
        }
}

TEST(swiglu_rope_softmax_add) {
    over_lengths([](const Kernels& fast, int n, int shift) {
        const Row x(n, shift, 3);
        const Row y(n, 7 - shift);
        Out got(n);
        Out want(n);
        fast.swiglu(x.get(), y.get(), n, got.get());
        scalar_kernels().swiglu(x.get(), y.get(), n, want.get());
        check_close(got, want, 3e-6, 1e-6);

        std::copy_n(x.get(), n, got.get());
        std::copy_n(x.get(), n, want.get());
        fast.softmax(got.get(), n);
        scalar_kernels().softmax(want.get(), n);
        check_close(got, want, 1e-5, 1e-7);

        fast.add(y.get(), n, got.get());
        scalar_kernels().add(y.get(), n, want.get());
        check_close(got, want, 1e-5, 1e-7);

        Out rotated(2 * n);
        Out rotated_want(2 * n);
        const Row both(2 * n, shift);
        std::copy_n(both.get(), 2 * n, rotated.get());
        std::copy_n(both.get(), 2 * n, rotated_want.get());
        fast.rope(rotated.get(), x.get(), y.get(), n);
        scalar_kernels().rope(rotated_want.get(), x.get(), y.get(), n);
        check_close(rotated, rotated_want, 1e-6, 1e-5);
    });
}

TEST(softmax_of_low_values_ignores_what_is_masked) {
    for (const Kernels* fast : fast_tables()) {
        float x[3] = {-1000, -1001, -1002};
        fast->softmax(x, 3);
        CHECK_NEAR(x[0] + x[1] + x[2], 1, 1e-6);
        CHECK_NEAR(x[0], 0.66524, 1e-4);
    }
}

TEST(norms_and_dot) {
    over_lengths([](const Kernels& fast, int n, int shift) {
        const Row x(n, shift, 2);
        const Row w(n, 7 - shift);
        const Row b(n, shift);
        Out got(n);
        Out want(n);
        fast.rms_norm(x.get(), w.get(), 1e-6F, n, got.get());
        scalar_kernels().rms_norm(x.get(), w.get(), 1e-6F, n, want.get());
        check_close(got, want, 1e-5, 1e-6);
        fast.layer_norm(x.get(), w.get(), b.get(), 1e-3F, n, got.get());
        scalar_kernels().layer_norm(x.get(), w.get(), b.get(), 1e-3F, n, want.get());
        check_close(got, want, 2e-5, 2e-5);
        CHECK_NEAR(fast.dot(x.get(), w.get(), n), scalar_kernels().dot(x.get(), w.get(), n), 1e-4);
    });
}

TEST(half_rows) {
    over_lengths([](const Kernels& fast, int n, int shift) {
        const Row x(n, shift, 100);
        std::vector<uint16_t> got(static_cast<size_t>(n) + 8, 0xabcd);
        std::vector<uint16_t> want(static_cast<size_t>(n) + 8, 0xabcd);
        fast.float_to_half_row(x.get(), n, got.data());
        scalar_kernels().float_to_half_row(x.get(), n, want.data());
        CHECK(got == want);
    });
}

TEST(every_half_survives_the_round_trip) {
    for (uint32_t h = 0; h < 0x10000; ++h) {
        const bool nan = (h & 0x7c00U) == 0x7c00U && (h & 0x3ffU) != 0;
        if (!nan) CHECK(float_to_half(half_to_float(static_cast<uint16_t>(h))) == h);
    }
    CHECK(float_to_half(65520.0F) == 0x7c00);  // rounds to infinity
    CHECK(float_to_half(65519.9F) == 0x7bff);
    CHECK(float_to_half(1.0F + 1.0F / 2048) == 0x3c00);  // ties to even
    CHECK(float_to_half(1.0F + 3.0F / 2048) == 0x3c02);
}

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

template <typename F>
void over_attention(bool half, const F& call) {
    for (const Kernels* fast : fast_tables())
        for (int n = 1; n <= 300; n += n < 40 ? 1 : 13)
            for (const int d : {32, 64, 128, 8, 20, 72, 256}) {
                const ptrdiff_t stride = d + n % 3;
                const Row q(d, n % 8);
                const Row k(static_cast<int>(stride) * n, n % 5);
                const Row v(static_cast<int>(stride) * n, n % 7);
                std::vector<uint16_t> kh, vh;
                for (int i = 0; i < k.size(); ++i) {
                    kh.push_back(float_to_half(k[i]));
                    vh.push_back(float_to_half(v[i]));
                }
                Out got(d);
                Out want(d);
                std::vector<float> scores(static_cast<size_t>(n));
                AttnArgs a = {.q = q.get(),
                              .k = k.get(),
                              .v = v.get(),
                              .kv_row = stride,
                              .n = n,
                              .d = d,
                              .scale = 0.3F,
                              .scores = scores.data(),
                              .out = got.get()};
                if (half) {
                    a.k = kh.data();
                    a.v = vh.data();
                }
                call(*fast, a);
                a.out = want.get();
                call(scalar_kernels(), a);
                check_close(got, want, 1e-5, 1e-5);
            }
}

}  // namespace

TEST(attention_f32) {
    over_attention(false, [](const Kernels& k, const AttnArgs& a) { k.attention_f32(a); });
}

TEST(attention_f16) {
    over_attention(true, [](const Kernels& k, const AttnArgs& a) { k.attention_f16(a); });
}

TEST(depthwise) {
    over_lengths([](const Kernels& fast, int n, int shift) {
        const int rows = 1 + n % 5;
        const int taps = 7;
        const Row x((rows + taps - 1) * n, shift);
        const Row w(taps * n, 7 - shift);
        const Row b(n, shift);
        Out got(rows * n);
        Out want(rows * n);
        DepthwiseArgs a = {.x = x.get(),
                           .x_row = n,
                           .taps = taps,
                           .channels = n,
                           .w = w.get(),
                           .bias = b.get(),
                           .rows = rows,
                           .y = got.get(),
                           .y_row = n};
        fast.depthwise(a);
        a.y = want.get();
        scalar_kernels().depthwise(a);
        check_close(got, want, 1e-5, 1e-5);
    });
}

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
    const struct {
        Gemm fast, slow;
        const void* w;
    } types[] = {{fast.gemm_f32, scalar_kernels().gemm_f32, w.data()},
                 {fast.gemm_f16, scalar_kernels().gemm_f16, h16.data()},
                 {fast.gemm_bf16, scalar_kernels().gemm_bf16, b16.data()},
                 {fast.gemm_w8, scalar_kernels().gemm_w8, w8.data()}};
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
    std::vector<const Kernels*> tables = fast_tables();
    tables.push_back(&scalar_kernels());
    for (const Kernels* table : tables)
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
    std::vector<const Kernels*> tables = fast_tables();
    tables.push_back(&scalar_kernels());
    for (const Kernels* table : tables) {
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

TEST(a_q8_sum_does_not_depend_on_its_neighbours) {
    for (const Kernels* fast : fast_tables()) {
        Q8Problem p = q8_problem(11, 24, 300);
        Out all(p.rows * p.n);
        fast->gemm_q8(q8_args(p, false, all.get()));
        Q8Problem p4 = q8_problem(11, 24, 300, kQ4SuperBytes);
        Out all4(p4.rows * p4.n);
        fast->gemm_q4(q8_args(p4, false, all4.get()));
        for (int r = 0; r < p.rows; ++r) {
            GemmQ8Args one = q8_args(p, false, nullptr);
            float y[24];
            one.x += r * one.x_row;
            one.xs += r * one.xs_row;
            one.rows = 1;
            one.y = y;
            fast->gemm_q8(one);
            for (int o = 0; o < p.n; ++o) CHECK(y[o] == all[r * p.n + o]);
            one = q8_args(p4, false, y);
            one.x += r * one.x_row;
            one.xs += r * one.xs_row;
            one.rows = 1;
            fast->gemm_q4(one);
            for (int o = 0; o < p4.n; ++o) CHECK(y[o] == all4[r * p4.n + o]);
        }
    }
}
