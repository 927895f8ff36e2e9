// AVX-512 products of int8 with int8 and 4-bit weights, and the table. Compiled with -mavx512f and
// more (CMakeLists.txt): no shared inline functions.
//
// vpdpbusd multiplies unsigned by signed bytes and adds fours of them to an int32 without
// saturating. The weights are the unsigned operand, offset by 128 (or 8, the nibbles), which is one
// instruction for all rows; the offset's share, a multiple of the sum of a block of x, is taken off
// afterwards. Each number in it is an integer below 2^24, so that is exact in floats too, and the
// results are those of the AVX2 kernels to the last bit.

#include "avx512.h"

namespace qt {

const Kernels& avx2_table();  // kernels_avx2.cpp

namespace QT_AVX512 {
namespace {

using avx2::load_lanes;
using avx2::store_lanes;

// As in kernels_avx2.cpp, for each of the two groups.
constexpr int kAhead = 4096;
constexpr int kMostRows = 8;  // 8 sums and 8 dots of 16 outputs: half of the registers

// 32 bytes of one group of 8 outputs, then 32 of another.
__m512i join(const uint8_t* a, const uint8_t* b) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

__m512i broadcast4(const int8_t* x) {
    int32_t four;
    __builtin_memcpy(&four, x, 4);
    return _mm512_set1_epi32(four);
}

struct Q8 {
    static constexpr int kSuperBytes = kQ8SuperBytes;
    static constexpr float kOffset = 128;

    // dots[r] = sum over one block of 32 of x[r] * (q + offset) for 8 outputs of two groups.
    template <int R>
    [[gnu::always_inline]] static void block(const uint8_t* a, const uint8_t* b,
                                             const int8_t* const* x, ptrdiff_t at, __m512i* dots) {
        const __m512i offset = _mm512_set1_epi8(-128);
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            const __m512i w = _mm512_xor_si512(join(a + i * 32, b + i * 32), offset);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r)
                dots[r] = _mm512_dpbusd_epi32(dots[r], w, broadcast4(x[r] + at + i * 4));
        }
    }
};

struct Q4 {
    static constexpr int kSuperBytes = kQ4SuperBytes;
    static constexpr float kOffset = 8;

    template <int R>
    [[gnu::always_inline]] static void block(const uint8_t* a, const uint8_t* b,
                                             const int8_t* const* x, ptrdiff_t at, __m512i* dots) {
        const __m512i nibble = _mm512_set1_epi8(15);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const __m512i w = join(a + i * 32, b + i * 32);
            const __m512i low = _mm512_and_si512(w, nibble);
            const __m512i high = _mm512_and_si512(_mm512_srli_epi16(w, 4), nibble);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                dots[r] = _mm512_dpbusd_epi32(dots[r], low, broadcast4(x[r] + at + i * 4));
                dots[r] = _mm512_dpbusd_epi32(dots[r], high, broadcast4(x[r] + at + 16 + i * 4));
            }
        }
    }
};

// Scales of 8 outputs of each group.
__m512 scales_of(const uint8_t* a, const uint8_t* b) {
    const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a));
    const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b));
    return _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1));
}

void store8(const GemmQ8Args& g, int r, int o, __m256 v) {
    const int count = g.n - o;
    if (count <= 0) return;
    if (g.bias) v = _mm256_add_ps(v, load_lanes(g.bias + o, count));
    if (g.residual) v = _mm256_add_ps(v, load_lanes(g.residual + r * g.residual_row + o, count));
    store_lanes(g.y + r * g.y_row + o, count, v);
}

// R rows of x by two groups of 8 outputs; a last group alone stands in for its neighbour.
template <typename Format, int R>
void q_tile(const GemmQ8Args& g, int r0, int o0) {
    constexpr int kBlockBytes = (Format::kSuperBytes - 64) / 4;
    const int supers = q8_supers(g.k);
    const ptrdiff_t group = static_cast<ptrdiff_t>(supers) * Format::kSuperBytes;
    const uint8_t* a = g.w + o0 / kQ8Rows * group;
    const uint8_t* b = g.n - o0 > kQ8Rows ? a + group : a;
    const int8_t* x[R];
    const float* xs[R];
    __m512 sum[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
        x[r] = g.x + (r0 + r) * g.x_row;
        xs[r] = g.xs + (r0 + r) * g.xs_row;
        sum[r] = _mm512_setzero_ps();
    }
    for (int s = 0; s < supers; ++s, a += Format::kSuperBytes, b += Format::kSuperBytes) {
        // Behind a group's end lies the other one of the pair: what comes next is one further.
        const ptrdiff_t done = static_cast<ptrdiff_t>(s) * Format::kSuperBytes;
        const ptrdiff_t ahead = kAhead + (done + kAhead < group ? 0 : group);
#pragma GCC unroll 17
        for (int line = 0; line < Format::kSuperBytes; line += 64) {
            _mm_prefetch(reinterpret_cast<const char*>(a + ahead + line), _MM_HINT_T0);
            _mm_prefetch(reinterpret_cast<const char*>(b + ahead + line), _MM_HINT_T0);
        }
        for (int j = 0; j < 4; ++j) {
            const int at = s * 4 + j;
            __m512i dots[R];
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) dots[r] = _mm512_setzero_si512();
            const int offset = 64 + j * kBlockBytes;
            Format::template block<R>(a + offset, b + offset, x, static_cast<ptrdiff_t>(at) * 64,
                                      dots);
            const __m512 scales = scales_of(a + j * kQ8Rows * 2, b + j * kQ8Rows * 2);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                const __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(xs[r][at]));
                // The row holds 8 times the sum of the block.
                const float share = Format::kOffset / 8 * xs[r][supers * 4 + at];
                const __m512 dot =
                    _mm512_sub_ps(_mm512_cvtepi32_ps(dots[r]), _mm512_set1_ps(share));
                sum[r] = _mm512_fmadd_ps(dot, scale, sum[r]);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
        store8(g, r0 + r, o0, _mm512_castps512_ps256(sum[r]));
        store8(g, r0 + r, o0 + kQ8Rows, _mm512_extractf32x8_ps(sum[r], 1));
    }
}

template <typename Format>
void gemm_q(const GemmQ8Args& g) {
    for (int o = 0; o < g.n; o += 2 * kQ8Rows)
        for (int r = 0; r < g.rows; r += kMostRows) {
            const int rows = g.rows - r < kMostRows ? g.rows - r : kMostRows;
            with_rows(rows, [&]<int R>() {
                if constexpr (R <= kMostRows) q_tile<Format, R>(g, r, o);
            });
        }
}

}  // namespace

const Kernels& table() {
    static const Kernels kernels = [] {
        Kernels k = avx2_table();
        k.name = "avx512";
        k.gemm_f32 = gemm_f32;
        k.gemm_f16 = gemm_f16;
        k.gemm_bf16 = gemm_bf16;
        k.gemm_w8 = gemm_w8;
        k.gemm_q8 = gemm_q<Q8>;
        k.gemm_q4 = gemm_q<Q4>;
        return k;
    }();
    return kernels;
}

}  // namespace QT_AVX512
}  // namespace qt
