// Every fast kernel that works along one row against the scalar one: all lengths 1..300, all
// misalignments, and no byte read or written outside the ranges.
#include "half.h"
#include "kernel_checks.h"

using namespace qt;

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

        // From the same sums: where they cancel, what softmax may differ by would be much.
        std::copy_n(want.get(), n, got.get());
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
