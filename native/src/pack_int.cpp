#include "pack_int.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "half.h"

namespace qt {
namespace {

// To the nearest integer, ties to even, for |v| < 2^22: written so that the compiler makes vectors
// of it on every machine (nearbyint is a call where the instruction set is old).
float rounded(float v) {
    constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: the sum has no fraction bits left
    return (v + kMagic) - kMagic;
}

// 8 bits: q within -127..127, the largest weight at the end of the range.
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

// q within -kRange..kRange-1 of the weights over `scale`; returns the squared error (but for the
// sum of w^2, which is the same for every scale) with the best scale for these q, which replaces
// `scale`.
template <int kRange>
float try_scale(const Block32& w, float* scale, Block32& q) {
    constexpr float kMagic = 12582912.0F;  // as in rounded()
    constexpr float kLow = -kRange;
    constexpr float kHigh = kRange - 1;
    const float inverse = 1 / *scale;
    Four wq = {};
    Four qq = {};
    for (int i = 0; i < 8; ++i) {
        const Four v = (w.v[i] * inverse + kMagic) - kMagic;
        const Four low = v < kLow ? Four{kLow, kLow, kLow, kLow} : v;
        q.v[i] = low > kHigh ? Four{kHigh, kHigh, kHigh, kHigh} : low;
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

// q within -kRange..kRange-1: the scale of least squared error among those near max/-kRange, where
// the largest weight sits at the lower end (its sign decides the scale's).
template <int kRange>
Weights32 quantize_searched(const float* weights) {
    Weights32 best = {};
    Block32 w;
    std::memcpy(&w, weights, sizeof w);
    const float largest = extreme(w);
    // Too small for a half: zero it is.
    if (half_to_float(float_to_half(largest / (-kRange - 0.5F))) == 0) return best;
    float least = 0;
    float scale = 0;
    Block32 chosen = {};
    for (const float more : {0.0F, 1.0F, 0.5F, -0.5F, 1.5F}) {
        Block32 q;
        float tried = largest / (more - kRange);
        const float error = try_scale<kRange>(w, &tried, q);
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

const float* as_floats(const RowRef& ref, int k, std::vector<float>& floats) {
    // Whole blocks: the rest of the last one is zero.
    floats.assign(static_cast<size_t>((k + 31) / 32 * 32), 0.0F);
    dequantize(ref.tensor->type, ref.data(), k, floats.data());
    return floats.data();
}

// Block `b` (0..3) of output `o` in a super-block.
void store_q8(Weights32 w, int b, int o, uint8_t* super) {
    // The kernels negate weights: -128, which no quantiser of this type writes, has no negative.
    for (int8_t& v : w.q) v = std::max<int8_t>(v, -127);
    uint8_t* at = super + 64 + b * 256 + o * 4;
    for (int i = 0; i < 8; ++i) std::memcpy(at + i * 32, w.q + i * 4, 4);
}

// `bits` 4, 5 or 6: nibbles, then the bits above them.
void store_bits(const Weights32& w, int bits, int b, int o, uint8_t* super) {
    const int zero = 1 << (bits - 1);
    const int high_bits = bits - 4;
    uint8_t* low = super + 64 + b * (128 + 32 * high_bits) + o * 4;
    uint8_t* high = low + 128;
    for (int i = 0; i < 16; ++i)
        low[i / 4 * 32 + i % 4] =
            static_cast<uint8_t>(((w.q[i] + zero) & 15) | ((w.q[i + 16] + zero) & 15) << 4);
    if (high_bits == 0) return;
    const int per_byte = 8 / high_bits;  // of the eight k/4
    for (int i = 0; i < 32; ++i) {
        const int four = i / 4;
        high[four / per_byte * 32 + i % 4] |=
            static_cast<uint8_t>(((w.q[i] + zero) >> 4) << (four % per_byte * high_bits));
    }
}

int super_bytes(int bits) {
    return 64 + 16 * 8 * bits;
}

Weights32 quantize(const float* w, int bits) {
    if (bits == 4) return quantize_searched<8>(w);
    if (bits == 5) return quantize_searched<16>(w);
    if (bits == 6) return quantize_searched<32>(w);
    return quantize_8(w);
}

}  // namespace

int exact_bits(TensorType type) {
    if (type == TensorType::q4_0) return 4;
    if (type == TensorType::q5_0) return 5;
    return type == TensorType::q8_0 ? 8 : 0;
}

Weights32 file_block(TensorType type, const uint8_t* row, int b) {
    const uint8_t* src = row + static_cast<ptrdiff_t>(b) * block_bytes(type);
    Weights32 w;
    std::memcpy(&w.scale, src, 2);
    src += 2;
    if (type == TensorType::q8_0) {
        std::memcpy(w.q, src, 32);
        return w;
    }
    uint32_t fifth = 0;
    const bool five = type == TensorType::q5_0;
    if (five) {
        std::memcpy(&fifth, src, 4);
        src += 4;
    }
    const int zero = five ? 16 : 8;
    for (int i = 0; i < 16; ++i) {
        const int low = (src[i] & 15) | static_cast<int>(fifth >> i & 1) << 4;
        const int high = src[i] >> 4 | static_cast<int>(fifth >> (i + 16) & 1) << 4;
        w.q[i] = static_cast<int8_t>(low - zero);
        w.q[i + 16] = static_cast<int8_t>(high - zero);
    }
    return w;
}

void store_integers(const RowRef& ref, int k, int bits, int o, uint8_t* group,
                    std::vector<float>& floats) {
    const TensorType type = ref.tensor->type;
    const bool exact = exact_bits(type) != 0 && exact_bits(type) <= bits;
    const float* w = exact ? nullptr : as_floats(ref, k, floats);
    for (int b = 0; b < (k + 31) / 32; ++b) {
        const Weights32 block =
            exact ? file_block(type, ref.data(), b) : quantize(w + b * ptrdiff_t{32}, bits);
        uint8_t* super = group + static_cast<ptrdiff_t>(b / 4) * super_bytes(bits);
        std::memcpy(super + (b % 4 * kQ8Rows + o) * 2, &block.scale, 2);
        if (bits == 8)
            store_q8(block, b % 4, o, super);
        else
            store_bits(block, bits, b % 4, o, super);
    }
}

}  // namespace qt
