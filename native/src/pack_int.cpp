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

// q within -8..7 of the weights over `scale`; returns the squared error (but for the sum of w^2,
// which is the same for every scale) with the best scale for these q, which replaces `scale`.
float try_scale(const float* w, float* scale, float* q) {
    const float inverse = 1 / *scale;
    float wq[8] = {};
    float qq[8] = {};
    for (int i = 0; i < 32; i += 8)
        for (int j = 0; j < 8; ++j) {
            const float v = rounded(w[i + j] * inverse);
            const float low = v < -8 ? -8 : v;
            q[i + j] = low > 7 ? 7 : low;
            wq[j] += w[i + j] * q[i + j];
            qq[j] += q[i + j] * q[i + j];
        }
    float sum_wq = 0;
    float sum_qq = 0;
    for (int j = 0; j < 8; ++j) {
        sum_wq += wq[j];
        sum_qq += qq[j];
    }
    if (sum_qq == 0) return 0;
    *scale = half_to_float(float_to_half(sum_wq / sum_qq));
    return *scale * *scale * sum_qq - 2 * *scale * sum_wq;
}

// q within -8..7: the scale of least squared error among those near max/-8, where the largest
// weight sits at -8 (its sign decides the scale's).
Weights32 quantize_4(const float* w) {
    Weights32 best = {};
    float largest = 0;
    for (int i = 0; i < 32; ++i)
        if (std::fabs(w[i]) > std::fabs(largest)) largest = w[i];
    if (largest == 0) return best;
    float least = 0;
    for (const float divisor : {-8.0F, -7.0F, -7.5F, -8.5F, -6.5F}) {
        float q[32];
        float scale = largest / divisor;
        if (half_to_float(float_to_half(scale)) == 0) break;  // too small for a half: zero it is
        const float error = try_scale(w, &scale, q);
        if (error >= least) continue;
        least = error;
        best.scale = float_to_half(scale);
        for (int i = 0; i < 32; ++i) best.q[i] = static_cast<int8_t>(q[i]);
    }
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
