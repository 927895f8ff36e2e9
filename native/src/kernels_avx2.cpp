// AVX2 matrix products. Compiled with -mavx2 -mfma -mf16c: no shared inline functions.

#include "avx2_math.h"
#include "kernels_avx2_rows.h"

namespace qt {
namespace avx2 {
namespace {

struct F16 {
    uint16_t bits;
};
struct Bf16 {
    uint16_t bits;
};

__m256 weights8(const float* w) { return _mm256_loadu_ps(w); }
__m256 weights8(const F16* w) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w)));
}
__m256 weights8(const Bf16* w) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(w));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

// What happens to 8 finished sums of row r, outputs o..o+count.
void finish8(const GemmArgs& g, int r, int o, int count, __m256 v) {
    if (g.bias) v = _mm256_add_ps(v, load_lanes(g.bias + o, count));
    if (g.scale) v = _mm256_mul_ps(v, load_lanes(g.scale + o, count));
    if (g.residual) v = _mm256_add_ps(v, load_lanes(g.residual + r * g.residual_row + o, count));
    if (g.y) store_lanes(g.y + r * g.y_row + o, count, v);
    if (!g.z) return;
    const bool snake = g.act == Act::snake;
    const __m256 a = snake ? load_lanes(g.act_a + o, count) : v;
    const __m256 b = snake ? load_lanes(g.act_b + o, count) : v;
    store_lanes(g.z + r * g.z_row + o, count, act8(g.act, v, a, b));
}

// R rows by P panels of sums in registers (R*P <= 6). Each sum runs over k upwards, whatever R and
// P are. The unroll pragmas matter: without them GCC spills the sums and runs three times slower.
template <typename W, int R, int P>
void tile(const GemmArgs& g, int r0, int o0) {
    const ptrdiff_t panel = static_cast<ptrdiff_t>(g.taps) * g.c_in * kPanel;
    const W* w = static_cast<const W*>(g.w) + o0 / kPanel * panel;
    const float* x = g.x + r0 * g.x_row;
    __m256 sum[R][P][2];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) sum[r][p][0] = sum[r][p][1] = _mm256_setzero_ps();
    for (int j = 0; j < g.taps; ++j) {
        const float* xj = x + j * g.x_tap;
        for (int c = 0; c < g.c_in; ++c, w += kPanel) {
            __m256 w0[P];
            __m256 w1[P];
#pragma GCC unroll 4
            for (int p = 0; p < P; ++p) {
                w0[p] = weights8(w + p * panel);
                w1[p] = weights8(w + p * panel + 8);
            }
#pragma GCC unroll 6
            for (int r = 0; r < R; ++r) {
                const __m256 xv = _mm256_broadcast_ss(xj + r * g.x_row + c);
#pragma GCC unroll 4
                for (int p = 0; p < P; ++p) {
                    sum[r][p][0] = _mm256_fmadd_ps(xv, w0[p], sum[r][p][0]);
                    sum[r][p][1] = _mm256_fmadd_ps(xv, w1[p], sum[r][p][1]);
                }
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) {
            const int o = o0 + p * kPanel;
            finish8(g, r0 + r, o, g.n - o, sum[r][p][0]);
            if (g.n - o > 8) finish8(g, r0 + r, o + 8, g.n - o - 8, sum[r][p][1]);
        }
}

template <typename W>
void rest_of_rows(const GemmArgs& g, int r, int o) {
    switch (g.rows - r) {
        case 1: return tile<W, 1, 1>(g, r, o);
        case 2: return tile<W, 2, 1>(g, r, o);
        case 3: return tile<W, 3, 1>(g, r, o);
        case 4: return tile<W, 4, 1>(g, r, o);
        case 5: return tile<W, 5, 1>(g, r, o);
        default: return;
    }
}

template <typename W>
void gemm(const GemmArgs& g) {
    int o = 0;
    // One or two rows are too few sums to hide the latency of an FMA: take several panels.
    if (g.rows == 1)
        for (; o + 3 * kPanel < g.n; o += 4 * kPanel) tile<W, 1, 4>(g, 0, o);
    if (g.rows == 2)
        for (; o + 2 * kPanel < g.n; o += 3 * kPanel) tile<W, 2, 3>(g, 0, o);
    for (; o < g.n; o += kPanel) {
        int r = 0;
        for (; r + 6 <= g.rows; r += 6) tile<W, 6, 1>(g, r, o);
        rest_of_rows<W>(g, r, o);
    }
}

// R rows of x by one group of 8 outputs.
template <int R>
void q8_tile(const GemmQ8Args& g, int r0, int o0) {
    const int supers = q8_supers(g.k);
    const ptrdiff_t magnitudes = static_cast<ptrdiff_t>(supers) * kQ8Super;
    const uint8_t* w = g.w + static_cast<ptrdiff_t>(o0 / kQ8Rows) * supers * kQ8SuperBytes;
    const int8_t* x = g.x + r0 * g.x_row;
    const float* xs = g.xs + r0 * g.xs_row;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256 sum[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sum[r] = _mm256_setzero_ps();
    for (int b = 0; b < supers * 4; ++b) {
        const uint8_t* super = w + static_cast<ptrdiff_t>(b / 4) * kQ8SuperBytes;
        const uint8_t* q = super + 64 + b % 4 * 256;
        // The hardware prefetcher stops at every page; one group is 8 KB for k = 1024.
        for (int line = 0; line < 256; line += 64) _mm_prefetch(q + 4096 + line, _MM_HINT_T0);
        __m256i dots[R];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) dots[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            const __m256i wv = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q + i * 32));
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
                const int8_t* at = x + r * g.x_row + b * 32 + i * 4;
                int32_t signed4;
                int32_t magnitude4;
                __builtin_memcpy(&signed4, at, 4);
                __builtin_memcpy(&magnitude4, at + magnitudes, 4);
                // |x| (unsigned) times w with the sign of x: pairs stay within 2*127*127 < 2^15.
                const __m256i signed_w = _mm256_sign_epi8(wv, _mm256_set1_epi32(signed4));
                const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi32(magnitude4), signed_w);
                dots[r] = _mm256_add_epi32(dots[r], _mm256_madd_epi16(pairs, ones));
            }
        }
        const __m256 scales = _mm256_cvtph_ps(
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(super + b % 4 * kQ8Rows * 2)));
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            const __m256 scale = _mm256_mul_ps(scales, _mm256_broadcast_ss(xs + r * g.xs_row + b));
            sum[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[r]), scale, sum[r]);
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

void gemm_q8(const GemmQ8Args& g) {
    for (int o = 0; o < g.n; o += kQ8Rows) {
        int r = 0;
        for (; r + 4 <= g.rows; r += 4) q8_tile<4>(g, r, o);
        switch (g.rows - r) {
            case 1: q8_tile<1>(g, r, o); break;
            case 2: q8_tile<2>(g, r, o); break;
            case 3: q8_tile<3>(g, r, o); break;
            default: break;
        }
    }
}

constexpr Kernels kAvx2 = {
    .name = "avx2",
    .gemm_f32 = gemm<float>,
    .gemm_f16 = gemm<F16>,
    .gemm_bf16 = gemm<Bf16>,
    .gemm_q8 = gemm_q8,
    .quantize_q8 = quantize_q8,
    .attention_f32 = attention_f32,
    .attention_f16 = attention_f16,
    .depthwise = depthwise,
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
const Kernels& avx2_table() { return avx2::kAvx2; }

}  // namespace qt
