// NEON products of int8 with int8 weights and with those of 4, 5 and 6 bits, and the table of all
// NEON kernels. Compiled for dot products (sdot, ARMv8.2): no shared inline functions.
//
// sdot multiplies signed bytes and adds fours of them to an int32; one of four bytes of x goes to
// every output, so that neither magnitudes nor broadcasts are needed. Tested under qemu only, never
// on a real ARM machine.

#include "kernels_neon.h"

#include "neon_math.h"

namespace qt::neon {
namespace {

constexpr int kAhead = 4096;  // as in kernels_avx2.cpp
constexpr int kMostRows = 4;

// Two registers of four outputs each.
struct Eight {
    int32x4_t dots[2];
};

struct Q8 {
    static constexpr int kSuperBytes = kQ8SuperBytes;

    // Four k: bytes 4 * lane of 16 of x by one line of weights.
    template <int R, int kLane>
    static void four(const uint8_t* q, const int8x16_t* x, Eight* rows) {
        const int8x16_t low = vreinterpretq_s8_u8(vld1q_u8(q));
        const int8x16_t high = vreinterpretq_s8_u8(vld1q_u8(q + 16));
        for (int r = 0; r < R; ++r) {
            rows[r].dots[0] = vdotq_laneq_s32(rows[r].dots[0], low, x[r], kLane);
            rows[r].dots[1] = vdotq_laneq_s32(rows[r].dots[1], high, x[r], kLane);
        }
    }

    // rows[r] = sum over one block of 32 of x[r] * q for 8 outputs, exact.
    template <int R>
    static void block(const uint8_t* q, const int8_t* const* x, ptrdiff_t at, Eight* rows) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half, q += 128) {
            int8x16_t v[R];
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) v[r] = vld1q_s8(x[r] + at + half * 16);
            four<R, 0>(q, v, rows);
            four<R, 1>(q + 32, v, rows);
            four<R, 2>(q + 64, v, rows);
            four<R, 3>(q + 96, v, rows);
        }
    }
    static float32x4_t from_zero(float32x4_t dots, float) { return dots; }
};

// v shifted left by kBits, right where that is negative.
template <int kBits>
uint8x16_t shifted(uint8x16_t v) {
    if constexpr (kBits > 0) return vshlq_n_u8(v, kBits);
    if constexpr (kBits < 0) return vshrq_n_u8(v, -kBits);
    return v;
}

// Weights of 4 bits and kHigh more. Below 64, they are themselves as signed bytes; their zero comes
// off the finished block through the sum of its activations.
template <int kHigh>
struct Nibbles {
    static constexpr int kSuperBytes = kQ4SuperBytes + kHigh * 128;

    // The weights of k/4 = kFour: their nibbles with their high bits, which begin at bit
    // kFour * kHigh, eight bits to a plane of 32 bytes.
    template <int kFour>
    static int8x16_t weights(uint8x16_t nibbles, const uint8_t* planes) {
        if constexpr (kHigh > 0) {
            constexpr int kBit = kFour * kHigh;
            const uint8x16_t high = shifted<4 - kBit % 8>(vld1q_u8(planes + kBit / 8 * 32));
            nibbles = vbslq_u8(vdupq_n_u8(((1 << kHigh) - 1) << 4), high, nibbles);
        }
        return vreinterpretq_s8_u8(nibbles);
    }

    template <int R, int kLane>
    static void eight(const uint8_t* q, const int8x16_t (*x)[2], Eight* rows) {
        for (int i = 0; i < 2; ++i, q += 16) {
            const uint8x16_t w = vld1q_u8(q + kLane * 32);
            const int8x16_t low = weights<kLane>(vandq_u8(w, vdupq_n_u8(15)), q + 128);
            const int8x16_t high = weights<kLane + 4>(vshrq_n_u8(w, 4), q + 128);
            for (int r = 0; r < R; ++r) {
                rows[r].dots[i] = vdotq_laneq_s32(rows[r].dots[i], low, x[r][0], kLane);
                rows[r].dots[i] = vdotq_laneq_s32(rows[r].dots[i], high, x[r][1], kLane);
            }
        }
    }

    template <int R>
    static void block(const uint8_t* q, const int8_t* const* x, ptrdiff_t at, Eight* rows) {
        int8x16_t v[R][2];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            v[r][0] = vld1q_s8(x[r] + at);
            v[r][1] = vld1q_s8(x[r] + at + 16);
        }
        eight<R, 0>(q, v, rows);
        eight<R, 1>(q, v, rows);
        eight<R, 2>(q, v, rows);
        eight<R, 3>(q, v, rows);
    }

    // Whole numbers below 2^18: the difference is exact.
    static float32x4_t from_zero(float32x4_t dots, float eight_sums) {
        return vsubq_f32(dots, set((1 << kHigh) * eight_sums));
    }
};

void store(const GemmQ8Args& g, int r, int o, float32x4_t v) {
    const int count = g.n - o;
    if (count <= 0) return;
    if (g.bias) v = vaddq_f32(v, load_lanes(g.bias + o, count));
    if (g.residual) v = vaddq_f32(v, load_lanes(g.residual + r * g.residual_row + o, count));
    store_lanes(g.y + r * g.y_row + o, count, v);
}

// R rows of x by one group of 8 outputs.
template <typename Format, int R>
void q_tile(const GemmQ8Args& g, int r0, int o0) {
    constexpr int kBlockBytes = (Format::kSuperBytes - 64) / 4;
    const int supers = q8_supers(g.k);
    const uint8_t* super =
        g.w + static_cast<ptrdiff_t>(o0 / kQ8Rows) * supers * Format::kSuperBytes;
    const int8_t* x[R];
    const float* xs[R];
    float32x4_t sum[R][2];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
        x[r] = g.x + (r0 + r) * g.x_row;
        xs[r] = g.xs + (r0 + r) * g.xs_row;
        sum[r][0] = sum[r][1] = set(0);
    }
    for (int s = 0; s < supers; ++s, super += Format::kSuperBytes) {
        for (int line = 0; line < Format::kSuperBytes; line += 64)
            __builtin_prefetch(super + kAhead + line);
        for (int j = 0; j < 4; ++j) {
            const int b = s * 4 + j;
            Eight rows[R];
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) rows[r].dots[0] = rows[r].dots[1] = vdupq_n_s32(0);
            Format::template block<R>(super + 64 + j * kBlockBytes, x,
                                      static_cast<ptrdiff_t>(b) * 64, rows);
            const auto* halves = reinterpret_cast<const uint16_t*>(super + j * kQ8Rows * 2);
            const float16x8_t half = vreinterpretq_f16_u16(vld1q_u16(halves));
            const float32x4_t scales[2] = {vcvt_f32_f16(vget_low_f16(half)),
                                           vcvt_high_f32_f16(half)};
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r)
                for (int i = 0; i < 2; ++i) {
                    const float32x4_t scale = vmulq_n_f32(scales[i], xs[r][b]);
                    const float32x4_t dot =
                        Format::from_zero(vcvtq_f32_s32(rows[r].dots[i]), xs[r][supers * 4 + b]);
                    sum[r][i] = vfmaq_f32(sum[r][i], dot, scale);
                }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
        for (int i = 0; i < 2; ++i) store(g, r0 + r, o0 + 4 * i, sum[r][i]);
}

template <typename Format>
void gemm_q(const GemmQ8Args& g) {
    for (int o = 0; o < g.n; o += kQ8Rows) {
        int r = 0;
        for (; r + kMostRows <= g.rows; r += kMostRows) q_tile<Format, kMostRows>(g, r, o);
        const int left = g.rows - r;
        if (left == 1) q_tile<Format, 1>(g, r, o);
        if (left == 2) q_tile<Format, 2>(g, r, o);
        if (left == 3) q_tile<Format, 3>(g, r, o);
    }
}

}  // namespace

// What had no NEON version would be the scalar one.
const Kernels& table() {
    static const Kernels kernels = [] {
        Kernels k = scalar_kernels();
        k.name = "neon";
        k.gemm_f32 = gemm_f32;
        k.gemm_f16 = gemm_f16;
        k.gemm_bf16 = gemm_bf16;
        k.gemm_w8 = gemm_w8;
        k.gemm_q8 = gemm_q<Q8>;
        k.gemm_q6 = gemm_q<Nibbles<2>>;
        k.gemm_q5 = gemm_q<Nibbles<1>>;
        k.gemm_q4 = gemm_q<Nibbles<0>>;
        k.quantize_q8 = quantize_q8;
        k.attention_f32 = attention_f32;
        k.attention_f16 = attention_f16;
        k.depthwise = depthwise;
        k.winograd_in = winograd_in;
        k.winograd_out = winograd_out;
        k.rms_norm = rms_norm;
        k.layer_norm = layer_norm;
        k.activate = activate;
        k.swiglu = swiglu;
        k.rope = rope;
        k.softmax = softmax;
        k.add = add;
        k.dot = dot;
        k.float_to_half_row = float_to_half_row;
        return k;
    }();
    return kernels;
}

}  // namespace qt::neon
