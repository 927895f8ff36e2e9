// 16-bit floats by bit arithmetic, for every machine.
#pragma once

#include <cstdint>
#include <cstring>

namespace qt {

// static, not inline: files compiled for one instruction set keep their own copies.
static inline float bits_to_float(uint32_t bits) {
    float f;
    std::memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t float_to_bits(float f) {
    uint32_t bits;
    std::memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float bf16_to_float(uint16_t h) {
    return bits_to_float(static_cast<uint32_t>(h) << 16);
}

static inline float half_to_float(uint16_t h) {
    const uint32_t sign = static_cast<uint32_t>(h & 0x8000U) << 16;
    const uint32_t exponent = (h >> 10) & 0x1fU;
    const uint32_t mantissa = h & 0x3ffU;
    if (exponent == 31) return bits_to_float(sign | 0x7f800000U | (mantissa << 13));
    if (exponent != 0) return bits_to_float(sign | ((exponent + 112) << 23) | (mantissa << 13));
    // Subnormal: mantissa * 2^-24, exact in fp32.
    const float magnitude = static_cast<float>(mantissa) * 5.9604644775390625e-8F;
    return sign ? -magnitude : magnitude;
}

// Round to nearest, ties to even; too large becomes infinity.
static inline uint16_t float_to_half(float f) {
    const uint32_t bits = float_to_bits(f);
    const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
    const uint32_t magnitude = bits & 0x7fffffffU;
    if (magnitude > 0x7f800000U) return static_cast<uint16_t>(sign | 0x7e00U);
    if (magnitude >= 0x477ff000U) return static_cast<uint16_t>(sign | 0x7c00U);
    if (magnitude < 0x38800000U) {
        // Below 2^-14: adding 0.5 lines the result's last bit up with 2^-24, so the FPU rounds.
        const float aligned = bits_to_float(magnitude) + 0.5F;
        return static_cast<uint16_t>(sign | (float_to_bits(aligned) - 0x3f000000U));
    }
    const uint32_t odd = (magnitude >> 13) & 1U;
    return static_cast<uint16_t>(sign | ((magnitude - 0x38000000U + 0xfffU + odd) >> 13));
}

}  // namespace qt
