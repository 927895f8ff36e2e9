#include "pack_int.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "half.h"

namespace qt {
namespace {

// 32 weights: value = scale * q.
struct Weights32 {
    int8_t q[32];
    uint16_t scale;  // half
};

// To the nearest integer, ties to even, for |v| < 2^22: written so that the compiler makes vectors
// of it on every machine (nearbyint is a call where the instruction set is old).
float rounded(float v) {
    constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: the sum has no fraction bits left
    return (v + kMagic) - kMagic;
}

// q within -127..127, the largest weight at the end of the range.
Weights32 quantize_8(const float* w) {
    Weights32 b;
    float largest = 0;
    for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(w[i]));
    b.scale = float_to_half(largest / 127);
    // Rounded down, the scale would push the largest weight past 127.
    if (half_to_float(b.scale) * 127 < largest) ++b.scale;
    const float inverse = half_to_float(b.scale) > 0 ? 1 / half_to_float(b.scale) : 0;
    for (int i = 0; i < 32; ++i)
        b.q[i] = static_cast<int8_t>(std::clamp(rounded(w[i] * inverse), -127.0F, 127.0F));
    return b;
}

// Four floats in one register of any machine.
using Four = float __attribute__((vector_size(16)));

// 32 weights, as the compiler likes them.
struct Block32 {
    Four v[8];
};

// q within -8..7 of the weights over `scale`; returns the squared error (but for the sum of w^2,
// which is the same for every scale) with the best scale for these q, which replaces `scale`.
float try_scale(const Block32& w, float* scale, Block32& q) {
    constexpr float kMagic = 12582912.0F;  // as in rounded()
    const float inverse = 1 / *scale;
    Four wq = {};
    Four qq = {};
    for (int i = 0; i < 8; ++i) {
        const Four v = (w.v[i] * inverse + kMagic) - kMagic;
        const Four low = v < -8.0F ? Four{-8, -8, -8, -8} : v;
        q.v[i] = low > 7.0F ? Four{7, 7, 7, 7} : low;
        wq += w.v[i] * q.v[i];
        qq += q.v[i] * q.v[i];
    }
    const float sum_wq = (wq[0] + wq[1]) + (wq[2] + wq[3]);
    const float sum_qq = (qq[0] + qq[1]) + (qq[2] + qq[3]);
    if (sum_qq == 0) return 0;
    *scale = sum_wq / sum_qq;
    return -*scale * sum_wq;
}

// The weight of largest magnitude, with its sign.
float extreme(const Block32& w) {
    Four high = w.v[0];
    Four low = w.v[0];
    for (int i = 1; i < 8; ++i) {
        high = w.v[i] > high ? w.v[i] : high;
        low = w.v[i] < low ? w.v[i] : low;
    }
    const float most = std::max(std::max(high[0], high[1]), std::max(high[2], high[3]));
    const float least = std::min(std::min(low[0], low[1]), std::min(low[2], low[3]));
    return most > -least ? most : least;
}

// q within -8..7: the scale of least squared error among those near max/-8, where the largest
// weight sits at -8 (its sign decides the scale's).
Weights32 quantize_4(const float* weights) {
    Weights32 best = {};
    Block32 w;
    std::memcpy(&w, weights, sizeof w);
    const float largest = extreme(w);
    // Too small for a half: zero it is.
    if (half_to_float(float_to_half(largest / -8.5F)) == 0) return best;
    float least = 0;
    float scale = 0;
    Block32 chosen = {};
    for (const float divisor : {-8.0F, -7.0F, -7.5F, -8.5F, -6.5F}) {
        Block32 q;
        float tried = largest / divisor;
        const float error = try_scale(w, &tried, q);
        if (!(error < least)) continue;  // nor a NaN
        least = error;
        scale = tried;
        chosen = q;
    }
    best.scale = float_to_half(scale);
    float q[32];
    std::memcpy(q, &chosen, sizeof q);
    for (int i = 0; i < 32; ++i) best.q[i] = static_cast<int8_t>(q[i]);
    return best;
}

Weights32 file_q8_0(const uint8_t* src) {
    Weights32 b;
    std::memcpy(&b.scale, src, 2);
    std::memcpy(b.q, src + 2, 32);
    // The kernels negate weights: -128, which no quantiser of this type writes, has no negative.
    for (int8_t& v : b.q) v = std::max<int8_t>(v, -127);
    return b;
}

Weights32 file_q4_0(const uint8_t* src) {
    Weights32 b;
    std::memcpy(&b.scale, src, 2);
    for (int i = 0; i < 16; ++i) {
        b.q[i] = static_cast<int8_t>((src[2 + i] & 15) - 8);
        b.q[i + 16] = static_cast<int8_t>((src[2 + i] >> 4) - 8);
    }
    return b;
}

const float* as_floats(const RowRef& ref, int k, std::vector<float>& floats) {
    // Whole blocks: the rest of the last one is zero.
    floats.assign(static_cast<size_t>((k + 31) / 32 * 32), 0.0F);
    dequantize(ref.tensor->type, ref.data(), k, floats.data());
    return floats.data();
}

}  // namespace

void store_q8_row(const RowRef& ref, int k, int o, uint8_t* group, std::vector<float>& floats) {
    const TensorType type = ref.tensor->type;
    const bool exact = type == TensorType::q8_0 || type == TensorType::q4_0;
    const float* w = exact ? nullptr : as_floats(ref, k, floats);
    for (int b = 0; b < (k + 31) / 32; ++b) {
        const Weights32 block = type == TensorType::q8_0 ? file_q8_0(ref.data() + b * ptrdiff_t{34})
                                : type == TensorType::q4_0
                                    ? file_q4_0(ref.data() + b * ptrdiff_t{18})
                                    : quantize_8(w + b * ptrdiff_t{32});
        uint8_t* super = group + static_cast<ptrdiff_t>(b / 4) * kQ8SuperBytes;
        std::memcpy(super + (b % 4 * kQ8Rows + o) * 2, &block.scale, 2);
        uint8_t* at = super + 64 + b % 4 * 256 + o * 4;
        for (int i = 0; i < 8; ++i) std::memcpy(at + i * 32, block.q + i * 4, 4);
    }
}

void store_q4_row(const RowRef& ref, int k, int o, uint8_t* group, std::vector<float>& floats) {
    const bool exact = ref.tensor->type == TensorType::q4_0;
    const float* w = exact ? nullptr : as_floats(ref, k, floats);
    for (int b = 0; b < (k + 31) / 32; ++b) {
        const Weights32 block =
            exact ? file_q4_0(ref.data() + b * ptrdiff_t{18}) : quantize_4(w + b * ptrdiff_t{32});
        uint8_t* super = group + static_cast<ptrdiff_t>(b / 4) * kQ4SuperBytes;
        std::memcpy(super + (b % 4 * kQ8Rows + o) * 2, &block.scale, 2);
        uint8_t* at = super + 64 + b % 4 * 128 + o * 4;
        for (int i = 0; i < 16; ++i)
            at[i / 4 * 32 + i % 4] =
                static_cast<uint8_t>((block.q[i] + 8) | (block.q[i + 16] + 8) << 4);
    }
}

}  // namespace qt
