// The obvious version of the kernels on int8 activations and weights of 4, 5, 6 and 8 bits.

#include "kernels_scalar_int.h"

#include <cmath>
#include <cstring>

#include "half.h"

namespace qt::scalar {
namespace {

// Element k, output o of one block of 32 x 8.
int q8_value(const uint8_t* block, int k, int o) {
    return static_cast<int8_t>(block[k / 4 * 32 + o * 4 + k % 4]);
}
int nibble(const uint8_t* block, int k, int o) {
    const int byte = block[k / 4 % 4 * 32 + o * 4 + k % 4];
    return k < 16 ? byte & 15 : byte >> 4;
}
int q4_value(const uint8_t* block, int k, int o) {
    return nibble(block, k, o) - 8;
}
int q5_value(const uint8_t* block, int k, int o) {
    const int high = block[128 + o * 4 + k % 4] >> (k / 4) & 1;
    return (nibble(block, k, o) | high << 4) - 16;
}
int q6_value(const uint8_t* block, int k, int o) {
    const int high = block[128 + k / 16 * 32 + o * 4 + k % 4] >> (k / 4 % 4 * 2) & 3;
    return (nibble(block, k, o) | high << 4) - 32;
}

template <int kSuperBytes>
void gemm(const GemmQ8Args& g, int (*value)(const uint8_t*, int, int)) {
    constexpr int kBlockBytes = (kSuperBytes - 64) / 4;
    const int supers = q8_supers(g.k);
    for (int o0 = 0; o0 < g.n; o0 += kQ8Rows) {
        const uint8_t* group = g.w + static_cast<ptrdiff_t>(o0 / kQ8Rows) * supers * kSuperBytes;
        const int width = g.n - o0 < kQ8Rows ? g.n - o0 : kQ8Rows;
        for (int r = 0; r < g.rows; ++r) {
            const int8_t* x = g.x + r * g.x_row;
            const float* xs = g.xs + r * g.xs_row;
            for (int o = 0; o < width; ++o) {
                float acc = 0;
                for (int b = 0; b < supers * 4; ++b) {
                    const uint8_t* super = group + static_cast<ptrdiff_t>(b / 4) * kSuperBytes;
                    uint16_t half;
                    std::memcpy(&half, super + (b % 4 * kQ8Rows + o) * 2, 2);
                    const uint8_t* block = super + 64 + b % 4 * kBlockBytes;
                    int32_t sum = 0;
                    for (int i = 0; i < 32; ++i) sum += x[b * 64 + i] * value(block, i, o);
                    acc += static_cast<float>(sum) * (half_to_float(half) * xs[b]);
                }
                if (g.bias) acc += g.bias[o0 + o];
                if (g.residual) acc += g.residual[r * g.residual_row + o0 + o];
                g.y[r * g.y_row + o0 + o] = acc;
            }
        }
    }
}

}  // namespace

void gemm_q8(const GemmQ8Args& g) {
    gemm<kQ8SuperBytes>(g, q8_value);
}

void gemm_q6(const GemmQ8Args& g) {
    gemm<kQ6SuperBytes>(g, q6_value);
}

void gemm_q5(const GemmQ8Args& g) {
    gemm<kQ5SuperBytes>(g, q5_value);
}

void gemm_q4(const GemmQ8Args& g) {
    gemm<kQ4SuperBytes>(g, q4_value);
}

void quantize_q8(const float* x, int k, int8_t* q, float* scales) {
    const int blocks = q8_blocks(k);
    for (int b = 0; b < blocks; ++b) {
        float largest = 0;
        for (int i = b * 32; i < k && i < b * 32 + 32; ++i)
            if (std::fabs(x[i]) > largest) largest = std::fabs(x[i]);
        const float inverse = largest > 0 ? 127 / largest : 0;
        scales[b] = largest / 127;
        int sum = 0;
        for (int i = 0; i < 32; ++i) {
            const int at = b * 32 + i;
            const float v = at < k ? std::nearbyint(x[at] * inverse) : 0;
            const int value = v > 127 ? 127 : v > -127 ? static_cast<int>(v) : -127;
            q[b * 64 + i] = static_cast<int8_t>(value);
            q[b * 64 + 32 + i] = static_cast<int8_t>(value < 0 ? -value : value);
            sum += value;
        }
        scales[blocks + b] = static_cast<float>(8 * sum);
    }
}

}  // namespace qt::scalar
