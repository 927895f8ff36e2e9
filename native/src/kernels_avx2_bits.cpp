// AVX2 products of int8 activations with 5- and 6-bit weights. Compiled with -mavx2 -mfma -mf16c:
// no shared inline functions.
//
// The weights are the unsigned operand, 16 or 32 too large each; their zero comes off the finished
// block through the sum of its activations.

#include "avx2_math.h"
#include "kernels_avx2_rows.h"

namespace qt::avx2 {
namespace {

// As in kernels_avx2.cpp: the hardware prefetcher stops at every page.
constexpr int kAhead = 4096;

__m256i load32(const uint8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

__m256i broadcast4(const int8_t* x) {
    int32_t four;
    __builtin_memcpy(&four, x, 4);
    return _mm256_set1_epi32(four);
}

// Keeps GCC from adding in a tree, for which it holds (and spills) all products.
void in_order(__m256i& sum) {
    asm("" : "+x"(sum));
}

// v shifted left by kBits (right where that is negative), and what stays of `mask` in each byte.
template <int kBits>
__m256i shifted(__m256i v, int mask) {
    const __m256i s = kBits >= 0 ? _mm256_slli_epi16(v, kBits >= 0 ? kBits : 0)
                                 : _mm256_srli_epi16(v, kBits < 0 ? -kBits : 0);
    return _mm256_and_si256(s, _mm256_set1_epi8(static_cast<char>(mask)));
}

struct Q5 {
    static constexpr int kSuperBytes = kQ5SuperBytes;
    static constexpr float kZero = 2;  // times eight
    // Four sums of two products of 31 * 127 fit an int16.
    static constexpr int kSums = 4;

    // The 32 weights of k/4 = I, 8 outputs each.
    template <int I>
    [[gnu::always_inline]] static __m256i weights(const uint8_t* q) {
        const __m256i low = shifted < I<4 ? 0 : -4>(load32(q + I % 4 * 32), 15);
        return _mm256_or_si256(low, shifted<4 - I>(load32(q + 128), 16));
    }
};

struct Q6 {
    static constexpr int kSuperBytes = kQ6SuperBytes;
    static constexpr float kZero = 4;
    static constexpr int kSums = 2;  // of two products of 63 * 127

    template <int I>
    [[gnu::always_inline]] static __m256i weights(const uint8_t* q) {
        const __m256i low = shifted < I<4 ? 0 : -4>(load32(q + I % 4 * 32), 15);
        return _mm256_or_si256(low, shifted<4 - I % 4 * 2>(load32(q + 128 + I / 4 * 32), 48));
    }
};

// dots[r] += sum of x[r] * q over k/4 = I, I+1, ... of one block, for 8 outputs, exact.
template <typename Format, int R, int I = 0>
[[gnu::always_inline]] inline void block(const uint8_t* q, const int8_t* const* x, ptrdiff_t at,
                                         __m256i* pairs, __m256i* dots) {
    const __m256i w = Format::template weights<I>(q);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
        const __m256i products = _mm256_maddubs_epi16(w, broadcast4(x[r] + at + I * 4));
        pairs[r] = I % Format::kSums == 0 ? products : _mm256_add_epi16(pairs[r], products);
        in_order(pairs[r]);
    }
    if constexpr (I % Format::kSums == Format::kSums - 1) {
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            const __m256i wide = _mm256_madd_epi16(pairs[r], _mm256_set1_epi16(1));
            dots[r] = I < Format::kSums ? wide : _mm256_add_epi32(dots[r], wide);
        }
    }
    if constexpr (I < 7) block<Format, R, I + 1>(q, x, at, pairs, dots);
}

// R rows of x by one group of 8 outputs.
template <typename Format, int R>
void tile(const GemmQ8Args& g, int r0, int o0) {
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
#pragma GCC unroll 13
        for (int line = 0; line < Format::kSuperBytes; line += 64)
            _mm_prefetch(super + kAhead + line, _MM_HINT_T0);
        for (int j = 0; j < 4; ++j) {
            const int b = s * 4 + j;
            __m256i pairs[R], dots[R];
            block<Format, R>(super + 64 + j * kBlockBytes, x, static_cast<ptrdiff_t>(b) * 64, pairs,
                             dots);
            const __m256 scales = _mm256_cvtph_ps(
                _mm_loadu_si128(reinterpret_cast<const __m128i*>(super + j * kQ8Rows * 2)));
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                const __m256 scale = _mm256_mul_ps(scales, _mm256_broadcast_ss(xs[r] + b));
                // Both sides of the difference are whole numbers below 2^18, so it is exact.
                const __m256 zero = set(Format::kZero * xs[r][supers * 4 + b]);
                const __m256 dot = _mm256_sub_ps(_mm256_cvtepi32_ps(dots[r]), zero);
                sum[r] = _mm256_fmadd_ps(dot, scale, sum[r]);
            }
        }
    }
    const int count = g.n - o0;
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
        __m256 v = sum[r];
        if (g.bias) v = _mm256_add_ps(v, load_lanes(g.bias + o0, count));
        if (g.residual)
            v = _mm256_add_ps(v, load_lanes(g.residual + (r0 + r) * g.residual_row + o0, count));
        store_lanes(g.y + (r0 + r) * g.y_row + o0, count, v);
    }
}

template <typename Format>
void gemm(const GemmQ8Args& g) {
    for (int o = 0; o < g.n; o += kQ8Rows) {
        int r = 0;
        for (; r + 4 <= g.rows; r += 4) tile<Format, 4>(g, r, o);
        const int left = g.rows - r;
        if (left == 1) tile<Format, 1>(g, r, o);
        if (left == 2) tile<Format, 2>(g, r, o);
        if (left == 3) tile<Format, 3>(g, r, o);
    }
}

}  // namespace

void gemm_q6(const GemmQ8Args& g) {
    gemm<Q6>(g);
}

void gemm_q5(const GemmQ8Args& g) {
    gemm<Q5>(g);
}

}  // namespace qt::avx2
