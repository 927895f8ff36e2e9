// NEON versions of everything that works along one row: norms, activations, attention. Tails are
// copied, never read past. Compiled for ARMv8.2: no shared inline functions.

#include "kernels_neon.h"
#include "neon_math.h"

namespace qt::neon {
namespace {

// f(i, count) for i in steps of 4, the last count below 4.
template <typename F>
void by_fours(int n, const F& f) {
    int i = 0;
    for (; i + 4 <= n; i += 4) f(i, 4);
    if (i < n) f(i, n - i);
}

float32x4_t load4(const float* p, int count) {
    return load_lanes(p, count);
}
float32x4_t load4(const uint16_t* p, int count) {
    if (count >= 4) return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
    uint16_t part[4] = {};
    for (int i = 0; i < count; ++i) part[i] = p[i];
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(part)));
}

// The first `count` lanes of v, `other` in the rest.
float32x4_t keep(float32x4_t v, int count, float32x4_t other) {
    if (count >= 4) return v;
    const int32x4_t lane = {0, 1, 2, 3};
    return vbslq_f32(vcltq_s32(lane, vdupq_n_s32(count)), v, other);
}

// N positions at once hide the latency of the sum; each position is summed in the same order.
template <int N, typename T>
void scores_of(const AttnArgs& a, const T* k, float* scores) {
    float32x4_t sum[N];
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) sum[j] = set(0);
    by_fours(a.d, [&](int c, int count) {
        const float32x4_t q = load4(a.q + c, count);
#pragma GCC unroll 8
        for (int j = 0; j < N; ++j)
            sum[j] = vfmaq_f32(sum[j], q, load4(k + j * a.kv_row + c, count));
    });
    for (int j = 0; j < N; ++j) scores[j] = vaddvq_f32(sum[j]) * a.scale;
}

// out[0..4N) of the channels from c: sum over positions, in order.
template <int N, typename T>
void values_of(const AttnArgs& a, const T* v, int c, int last_count) {
    float32x4_t out[N];
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) out[j] = set(0);
    for (int i = 0; i < a.n; ++i) {
        const T* row = v + i * a.kv_row + c;
#pragma GCC unroll 8
        for (int j = 0; j < N; ++j)
            out[j] =
                vfmaq_n_f32(out[j], load4(row + j * 4, j == N - 1 ? last_count : 4), a.scores[i]);
    }
    for (int j = 0; j < N; ++j) store_lanes(a.out + c + j * 4, j == N - 1 ? last_count : 4, out[j]);
}

template <typename T>
void attention(const AttnArgs& a) {
    const T* k = static_cast<const T*>(a.k);
    const T* v = static_cast<const T*>(a.v);
    int i = 0;
    for (; i + 8 <= a.n; i += 8) scores_of<8>(a, k + i * a.kv_row, a.scores + i);
    for (; i < a.n; ++i) scores_of<1>(a, k + i * a.kv_row, a.scores + i);
    softmax(a.scores, a.n);
    int c = 0;
    for (; c + 32 <= a.d; c += 32) values_of<8>(a, v, c, 4);
    for (; c < a.d; c += 4) values_of<1>(a, v, c, a.d - c);
}

}  // namespace

void attention_f32(const AttnArgs& a) {
    attention<float>(a);
}
void attention_f16(const AttnArgs& a) {
    attention<uint16_t>(a);
}

void quantize_q8(const float* x, int k, int8_t* q, float* scales) {
    const int blocks = q8_blocks(k);
    for (int b = 0; b < blocks; ++b) {
        float32x4_t v[8];
        float32x4_t most = set(0);
        for (int j = 0; j < 8; ++j) {
            const int left = k - b * 32 - j * 4;
            v[j] = left <= 0 ? set(0) : load_lanes(x + b * 32 + j * 4, left);
            most = vmaxnmq_f32(most, vabsq_f32(v[j]));
        }
        const float largest = vmaxvq_f32(most);
        scales[b] = largest / 127;
        const float inverse = largest > 0 ? 127 / largest : 0;
        int sum = 0;
        for (int half = 0; half < 2; ++half) {
            int16x4_t n[4];
            for (int j = 0; j < 4; ++j)
                n[j] = vqmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(v[half * 4 + j], inverse)));
            int8x16_t bytes = vcombine_s8(vqmovn_s16(vcombine_s16(n[0], n[1])),
                                          vqmovn_s16(vcombine_s16(n[2], n[3])));
            bytes = vmaxq_s8(bytes, vdupq_n_s8(-127));
            vst1q_s8(q + b * 64 + half * 16, bytes);
            vst1q_s8(q + b * 64 + 32 + half * 16, vabsq_s8(bytes));
            sum += vaddlvq_s8(bytes);
        }
        scales[blocks + b] = static_cast<float>(8 * sum);
    }
}

void depthwise(const DepthwiseArgs& d) {
    for (int r = 0; r < d.rows; ++r) {
        by_fours(d.channels, [&](int c, int count) {
            float32x4_t sum = d.bias ? load_lanes(d.bias + c, count) : set(0);
            for (int j = 0; j < d.taps; ++j) {
                const float32x4_t x = load_lanes(d.x + (r + j) * d.x_row + c, count);
                const ptrdiff_t at = static_cast<ptrdiff_t>(j) * d.channels + c;
                sum = vfmaq_f32(sum, x, load_lanes(d.w + at, count));
            }
            store_lanes(d.y + r * d.y_row + c, count, sum);
        });
    }
}

void rms_norm(const float* x, const float* w, float eps, int n, float* y) {
    const float mean = dot(x, x, n) / static_cast<float>(n);
    const float inverse = 1 / __builtin_sqrtf(mean + eps);
    by_fours(n, [&](int i, int count) {
        const float32x4_t v = vmulq_n_f32(load_lanes(x + i, count), inverse);
        store_lanes(y + i, count, vmulq_f32(load_lanes(w + i, count), v));
    });
}

void layer_norm(const float* x, const float* w, const float* b, float eps, int n, float* y) {
    float32x4_t sum = set(0);
    by_fours(n, [&](int i, int count) { sum = vaddq_f32(sum, load_lanes(x + i, count)); });
    const float32x4_t mean = set(vaddvq_f32(sum) / static_cast<float>(n));
    float32x4_t squares = set(0);
    by_fours(n, [&](int i, int count) {
        // Lanes beyond the row must not add mean^2.
        const float32x4_t v = keep(vsubq_f32(load_lanes(x + i, count), mean), count, set(0));
        squares = vfmaq_f32(squares, v, v);
    });
    const float inverse = 1 / __builtin_sqrtf(vaddvq_f32(squares) / static_cast<float>(n) + eps);
    by_fours(n, [&](int i, int count) {
        float32x4_t v = vmulq_n_f32(vsubq_f32(load_lanes(x + i, count), mean), inverse);
        v = vmulq_f32(v, load_lanes(w + i, count));
        store_lanes(y + i, count, vaddq_f32(v, load_lanes(b + i, count)));
    });
}

void activate(Act act, const float* x, const float* a, const float* b, int n, float* y) {
    const bool snake = act == Act::snake;
    by_fours(n, [&](int i, int count) {
        const float32x4_t va = snake ? load_lanes(a + i, count) : set(0);
        const float32x4_t vb = snake ? load_lanes(b + i, count) : set(0);
        store_lanes(y + i, count, act4(act, load_lanes(x + i, count), va, vb));
    });
}

void swiglu(const float* gate, const float* up, int n, float* y) {
    by_fours(n, [&](int i, int count) {
        const float32x4_t g = load_lanes(gate + i, count);
        store_lanes(y + i, count, vmulq_f32(vmulq_f32(g, sigmoid4(g)), load_lanes(up + i, count)));
    });
}

void rope(float* x, const float* cos, const float* sin, int half) {
    by_fours(half, [&](int i, int count) {
        const float32x4_t low = load_lanes(x + i, count);
        const float32x4_t high = load_lanes(x + half + i, count);
        const float32x4_t c = load_lanes(cos + i, count);
        const float32x4_t s = load_lanes(sin + i, count);
        store_lanes(x + i, count, vfmsq_f32(vmulq_f32(low, c), high, s));
        store_lanes(x + half + i, count, vfmaq_f32(vmulq_f32(low, s), high, c));
    });
}

void softmax(float* x, int n) {
    float32x4_t most = set(x[0]);
    by_fours(n, [&](int i, int count) {
        // Lanes beyond the row hold 0, which may be more than every real value.
        most = vmaxq_f32(most, keep(load_lanes(x + i, count), count, most));
    });
    const float32x4_t top = set(vmaxvq_f32(most));
    float32x4_t sum = set(0);
    by_fours(n, [&](int i, int count) {
        const float32x4_t e = exp4(vsubq_f32(load_lanes(x + i, count), top));
        store_lanes(x + i, count, e);
        sum = vaddq_f32(sum, keep(e, count, set(0)));
    });
    const float inverse = 1 / vaddvq_f32(sum);
    by_fours(n, [&](int i, int count) {
        store_lanes(x + i, count, vmulq_n_f32(load_lanes(x + i, count), inverse));
    });
}

void add(const float* x, int n, float* y) {
    by_fours(n, [&](int i, int count) {
        store_lanes(y + i, count, vaddq_f32(load_lanes(y + i, count), load_lanes(x + i, count)));
    });
}

float dot(const float* a, const float* b, int n) {
    float32x4_t sum[4] = {set(0), set(0), set(0), set(0)};
    int i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 4; ++j)
            sum[j] = vfmaq_f32(sum[j], vld1q_f32(a + i + j * 4), vld1q_f32(b + i + j * 4));
    for (int j = 0; i < n; i += 4, ++j)
        sum[j] = vfmaq_f32(sum[j], load_lanes(a + i, n - i), load_lanes(b + i, n - i));
    return vaddvq_f32(vaddq_f32(vaddq_f32(sum[0], sum[1]), vaddq_f32(sum[2], sum[3])));
}

void float_to_half_row(const float* x, int n, uint16_t* y) {
    by_fours(n, [&](int i, int count) {
        const uint16x4_t h = vreinterpret_u16_f16(vcvt_f16_f32(load_lanes(x + i, count)));
        if (count >= 4) return vst1_u16(y + i, h);
        uint16_t part[4];
        vst1_u16(part, h);
        for (int j = 0; j < count; ++j) y[i + j] = part[j];
    });
}

}  // namespace qt::neon
