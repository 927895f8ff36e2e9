// AVX2 products of int8 with int8 and 4-bit weights, and the table of all AVX2 kernels. Compiled
// with -mavx2 -mfma -mf16c: no shared inline functions.

#include "avx2_math.h"
#include "kernels_avx2_rows.h"

namespace qt {
namespace avx2 {
namespace {

// Prefetch distance: the hardware prefetcher stops at every page, and one group of 8 outputs is 8
// KB for k = 1024.
constexpr int kAhead = 4096;

__m256i broadcast4(const int8_t* x) {
    int32_t four;
    __builtin_memcpy(&four, x, 4);
    return _mm256_set1_epi32(four);
}

// Keeps GCC from adding in a tree, for which it holds (and spills) all products.
void in_order(__m256i& sum) {
    asm("" : "+x"(sum));
}

struct Q8 {
    static constexpr int kSuperBytes = kQ8SuperBytes;

    // dots[r] = sum over one block of 32 of x[r] * q for 8 outputs, exact.
    template <int R>
    [[gnu::always_inline]] static void block(const uint8_t* q, const int8_t* const* x, ptrdiff_t at,
                                             __m256i* dots) {
        const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) dots[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q + i * 32));
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                // |x| (unsigned) times w with the sign of x: pairs stay within 2*127*127 < 2^15.
                const __m256i signed_w = _mm256_sign_epi8(w, broadcast4(x[r] + at + i * 4));
                const __m256i pairs =
                    _mm256_maddubs_epi16(broadcast4(x[r] + at + 32 + i * 4), signed_w);
                dots[r] = _mm256_add_epi32(dots[r], _mm256_madd_epi16(pairs, ones));
                in_order(dots[r]);
            }
        }
    }
    static __m256 from_zero(__m256 dots, const float*) { return dots; }
};

struct Q4 {
    static constexpr int kSuperBytes = kQ4SuperBytes;

    // The nibbles are the unsigned operand, 8 too large each: sixteen products of 15 * 127 fit an
    // int16, so the whole block adds up before it is widened.
    template <int R>
    [[gnu::always_inline]] static void block(const uint8_t* q, const int8_t* const* x, ptrdiff_t at,
                                             __m256i* dots) {
        const __m256i nibble = _mm256_set1_epi8(15);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) dots[r] = _mm256_setzero_si256();
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q + i * 32));
            const __m256i low = _mm256_and_si256(w, nibble);
            const __m256i high = _mm256_and_si256(_mm256_srli_epi16(w, 4), nibble);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                dots[r] = _mm256_add_epi16(
                    dots[r], _mm256_maddubs_epi16(low, broadcast4(x[r] + at + i * 4)));
                dots[r] = _mm256_add_epi16(
                    dots[r], _mm256_maddubs_epi16(high, broadcast4(x[r] + at + 16 + i * 4)));
                in_order(dots[r]);
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) dots[r] = _mm256_madd_epi16(dots[r], _mm256_set1_epi16(1));
    }
    static __m256 from_zero(__m256 dots, const float* eight_sums) {
        return _mm256_sub_ps(dots, _mm256_broadcast_ss(eight_sums));
    }
};

// R rows of x by one group of 8 outputs.
template <typename Format, int R>
void q_tile(const GemmQ8Args& g, int r0, int o0) {
    constexpr int kBlockBytes = (Format::kSuperBytes - 64) / 4;
    const int supers = q8_supers(g.k);
    const uint8_t* super =
        g.w + static_cast<ptrdiff_t>(o0 / kQ8Rows) * supers * Format::kSuperBytes;
    const int8_t* x[R];
    const float* xs[R];
    __m256 sum[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
        x[r] = g.x + (r0 + r) * g.x_row;
        xs[r] = g.xs + (r0 + r) * g.xs_row;
        sum[r] = _mm256_setzero_ps();
    }
    for (int s = 0; s < supers; ++s, super += Format::kSuperBytes) {
#pragma GCC unroll 17
        for (int line = 0; line < Format::kSuperBytes; line += 64)
            _mm_prefetch(super + kAhead + line, _MM_HINT_T0);
        for (int j = 0; j < 4; ++j) {
            const int b = s * 4 + j;
            __m256i dots[R];
            Format::template block<R>(super + 64 + j * kBlockBytes, x,
                                      static_cast<ptrdiff_t>(b) * 64, dots);
            const __m256 scales = _mm256_cvtph_ps(
                _mm_loadu_si128(reinterpret_cast<const __m128i*>(super + j * kQ8Rows * 2)));
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                const __m256 scale = _mm256_mul_ps(scales, _mm256_broadcast_ss(xs[r] + b));
                const __m256 dot =
                    Format::from_zero(_mm256_cvtepi32_ps(dots[r]), xs[r] + supers * 4 + b);
                sum[r] = _mm256_fmadd_ps(dot, scale, sum[r]);
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
        const int count = g.n - o0;
        __m256 v = sum[r];
        if (g.bias) v = _mm256_add_ps(v, load_lanes(g.bias + o0, count));
        if (g.residual)
            v = _mm256_add_ps(v, load_lanes(g.residual + (r0 + r) * g.residual_row + o0, count));
        store_lanes(g.y + (r0 + r) * g.y_row + o0, count, v);
    }
}

template <typename Format>
void gemm_q(const GemmQ8Args& g) {
    for (int o = 0; o < g.n; o += kQ8Rows) {
        int r = 0;
        for (; r + 4 <= g.rows; r += 4) q_tile<Format, 4>(g, r, o);
        const int left = g.rows - r;
        if (left == 1) q_tile<Format, 1>(g, r, o);
        if (left == 2) q_tile<Format, 2>(g, r, o);
        if (left == 3) q_tile<Format, 3>(g, r, o);
    }
}

constexpr Kernels kAvx2 = {
    .name = "avx2",
    .gemm_f32 = gemm_f32,
    .gemm_f16 = gemm_f16,
    .gemm_bf16 = gemm_bf16,
    .gemm_w8 = gemm_w8,
    .gemm_q8 = gemm_q<Q8>,
    .gemm_q6 = gemm_q6,
    .gemm_q5 = gemm_q5,
    .gemm_q4 = gemm_q<Q4>,
    .quantize_q8 = quantize_q8,
    .attention_f32 = attention_f32,
    .attention_f16 = attention_f16,
    .depthwise = depthwise,
    .winograd_in = winograd_in,
    .winograd_out = winograd_out,
    .rms_norm = rms_norm,
    .layer_norm = layer_norm,
    .activate = activate,
    .swiglu = swiglu,
    .rope = rope,
    .softmax = softmax,
    .add = add,
    .dot = dot,
    .float_to_half_row = float_to_half_row,
};

}  // namespace
}  // namespace avx2

const Kernels& avx2_table();
const Kernels& avx2_table() {
    return avx2::kAvx2;
}

}  // namespace qt
