// The block formats of ggml, one function each.

#include <cstring>

#include "half.h"
#include "quant.h"
#include "status.h"

namespace qt {
namespace {

uint16_t load_half(const uint8_t* src) {
    uint16_t h;
    std::memcpy(&h, src, sizeof h);
    return h;
}

// half d; int8 q[32]
void block_q8_0(const uint8_t* src, float* dst) {
    const float d = half_to_float(load_half(src));
    for (int i = 0; i < 32; ++i) dst[i] = d * static_cast<float>(static_cast<int8_t>(src[2 + i]));
}

// half d; uint4 q[32], low nibbles first: d * (q - 8)
void block_q4_0(const uint8_t* src, float* dst) {
    const float d = half_to_float(load_half(src));
    for (int i = 0; i < 16; ++i) {
        dst[i] = d * static_cast<float>((src[2 + i] & 15) - 8);
        dst[i + 16] = d * static_cast<float>((src[2 + i] >> 4) - 8);
    }
}

// half d; uint32 of fifth bits; uint4 q[32], low nibbles first: d * (q - 16)
void block_q5_0(const uint8_t* src, float* dst) {
    const float d = half_to_float(load_half(src));
    uint32_t fifth;
    std::memcpy(&fifth, src + 2, sizeof fifth);
    for (int i = 0; i < 32; ++i) {
        const int byte = src[6 + i % 16];
        const int low = i < 16 ? byte & 15 : byte >> 4;
        dst[i] = d * static_cast<float>((low | static_cast<int>(fifth >> i & 1) << 4) - 16);
    }
}

// The 6-bit scale and minimum of sub-block j (0..7) in the 12 bytes that Q4_K and Q5_K share.
void k_scale(const uint8_t* packed, int j, int* scale, int* minimum) {
    if (j < 4) {
        *scale = packed[j] & 63;
        *minimum = packed[j + 4] & 63;
    } else {
        *scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6 << 4);
        *minimum = (packed[j + 4] >> 4) | (packed[j] >> 6 << 4);
    }
}

// half d, dmin; 12 bytes of scales; uint4 q[256]: d*scale*q - dmin*minimum per 32
void block_q4_k(const uint8_t* src, float* dst) {
    const float d = half_to_float(load_half(src));
    const float dmin = half_to_float(load_half(src + 2));
    const uint8_t* q = src + 16;
    for (int j = 0; j < 8; ++j) {
        int scale = 0;
        int minimum = 0;
        k_scale(src + 4, j, &scale, &minimum);
        const float step = d * static_cast<float>(scale);
        const float offset = dmin * static_cast<float>(minimum);
        for (int i = 0; i < 32; ++i) {
            const int byte = q[j / 2 * 32 + i];
            dst[j * 32 + i] = step * static_cast<float>(j % 2 ? byte >> 4 : byte & 15) - offset;
        }
    }
}

// As Q4_K with a fifth bit: half d, dmin; 12 bytes of scales; high bits [32]; uint4 q[256]
void block_q5_k(const uint8_t* src, float* dst) {
    const float d = half_to_float(load_half(src));
    const float dmin = half_to_float(load_half(src + 2));
    const uint8_t* high = src + 16;
    const uint8_t* q = src + 48;
    for (int j = 0; j < 8; ++j) {
        int scale = 0;
        int minimum = 0;
        k_scale(src + 4, j, &scale, &minimum);
        const float step = d * static_cast<float>(scale);
        const float offset = dmin * static_cast<float>(minimum);
        for (int i = 0; i < 32; ++i) {
            const int byte = q[j / 2 * 32 + i];
            const int value = (j % 2 ? byte >> 4 : byte & 15) + ((high[i] >> j & 1) << 4);
            dst[j * 32 + i] = step * static_cast<float>(value) - offset;
        }
    }
}

// low 4 bits [128 bytes], high 2 bits [64 bytes], int8 scale[16], half d: d * scale * (q - 32) per
// 16
void block_q6_k(const uint8_t* src, float* dst) {
    const float d = half_to_float(load_half(src + 208));
    const auto* scales = reinterpret_cast<const int8_t*>(src + 192);
    for (int i = 0; i < 256; ++i) {
        const int half = i / 128;  // each half: 64 low bytes, 32 high bytes
        const int quarter = i % 128 / 32;
        const int at = i % 32;
        const int low_byte = src[half * 64 + quarter % 2 * 32 + at];
        const int low = quarter < 2 ? low_byte & 15 : low_byte >> 4;
        const int high = src[128 + half * 32 + at] >> (2 * quarter) & 3;
        const float step = d * static_cast<float>(scales[i / 16]);
        dst[i] = step * static_cast<float>((low | high << 4) - 32);
    }
}

void blocks(TensorType type, const uint8_t* src, int64_t n, float* dst,
            void (*one)(const uint8_t*, float*)) {
    const int values = block_values(type);
    const int bytes = block_bytes(type);
    for (int64_t i = 0; i < n / values; ++i) one(src + i * bytes, dst + i * values);
}

}  // namespace

void dequantize(TensorType type, const uint8_t* src, int64_t n, float* dst) {
    switch (type) {
        case TensorType::f32:
            std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
            return;
        case TensorType::f16:
            for (int64_t i = 0; i < n; ++i) dst[i] = half_to_float(load_half(src + 2 * i));
            return;
        case TensorType::bf16:
            for (int64_t i = 0; i < n; ++i) dst[i] = bf16_to_float(load_half(src + 2 * i));
            return;
        case TensorType::q8_0:
            return blocks(type, src, n, dst, block_q8_0);
        case TensorType::q4_0:
            return blocks(type, src, n, dst, block_q4_0);
        case TensorType::q5_0:
            return blocks(type, src, n, dst, block_q5_0);
        case TensorType::q4_k:
            return blocks(type, src, n, dst, block_q4_k);
        case TensorType::q5_k:
            return blocks(type, src, n, dst, block_q5_k);
        case TensorType::q6_k:
            return blocks(type, src, n, dst, block_q6_k);
    }
}

std::vector<float> to_floats(const Tensor& tensor) {
    std::vector<float> out(static_cast<size_t>(tensor.values()));
    dequantize(tensor.type, tensor.data, tensor.values(), out.data());
    return out;
}

}  // namespace qt
