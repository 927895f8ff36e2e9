// exp, sin^2, erf and the activations on 4 floats: the formulas of avx2_math.h, which says how good
// they are. Everything is static: this header is only for the files compiled for NEON with dot
// products (CMakeLists.txt).
#pragma once

#include <arm_neon.h>

#include "kernels.h"

namespace qt::neon {

static inline float32x4_t set(float v) {
    return vdupq_n_f32(v);
}

// exp by 2^n * p(r), r within +-ln2/2; arguments outside -87..88 saturate, NaN stays.
static inline float32x4_t exp4(float32x4_t x) {
    x = vmaxq_f32(set(-87.0F), vminq_f32(set(88.0F), x));
    const float32x4_t n = vrndnq_f32(vmulq_f32(x, set(1.44269504F)));
    float32x4_t r = vfmsq_f32(x, n, set(0.693359375F));
    r = vfmsq_f32(r, n, set(-2.12194440e-4F));
    float32x4_t p = set(1.0F / 5040);
    p = vfmaq_f32(set(1.0F / 720), p, r);
    p = vfmaq_f32(set(1.0F / 120), p, r);
    p = vfmaq_f32(set(1.0F / 24), p, r);
    p = vfmaq_f32(set(1.0F / 6), p, r);
    p = vfmaq_f32(set(0.5F), p, r);
    p = vfmaq_f32(set(1.0F), p, r);
    p = vfmaq_f32(set(1.0F), p, r);
    const int32x4_t e = vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23);
    return vmulq_f32(p, vreinterpretq_f32_s32(e));
}

// sin(y)^2: the period is pi, so the sign of the reduced sine does not matter.
static inline float32x4_t sin_squared4(float32x4_t y) {
    if (vmaxvq_u32(vcgtq_f32(vabsq_f32(y), set(1e6F))) != 0) {
        // Too large for the three-part reduction; no trained model gets here.
        float v[4];
        vst1q_f32(v, y);
        for (float& f : v) {
            const float s = __builtin_sinf(f);
            f = s * s;
        }
        return vld1q_f32(v);
    }
    const float32x4_t n = vrndnq_f32(vmulq_f32(y, set(0.318309886F)));
    float32x4_t r = vfmsq_f32(y, n, set(3.140625F));
    r = vfmsq_f32(r, n, set(9.67502593994140625e-4F));
    r = vfmsq_f32(r, n, set(1.509957990978376432e-7F));
    const float32x4_t r2 = vmulq_f32(r, r);
    float32x4_t p = set(-1.0F / 39916800);
    p = vfmaq_f32(set(1.0F / 362880), p, r2);
    p = vfmaq_f32(set(-1.0F / 5040), p, r2);
    p = vfmaq_f32(set(1.0F / 120), p, r2);
    p = vfmaq_f32(set(-1.0F / 6), p, r2);
    const float32x4_t s = vfmaq_f32(r, vmulq_f32(p, r2), r);
    return vmulq_f32(s, s);
}

static inline float32x4_t sigmoid4(float32x4_t v) {
    return vdivq_f32(set(1.0F), vaddq_f32(set(1.0F), exp4(vnegq_f32(v))));
}

static inline float32x4_t erf4(float32x4_t v) {
    const float32x4_t x = vabsq_f32(v);
    const float32x4_t t = vdivq_f32(set(1.0F), vfmaq_f32(set(1.0F), set(0.3275911F), x));
    float32x4_t p = set(1.061405429F);
    p = vfmaq_f32(set(-1.453152027F), p, t);
    p = vfmaq_f32(set(1.421413741F), p, t);
    p = vfmaq_f32(set(-0.284496736F), p, t);
    p = vfmaq_f32(set(0.254829592F), p, t);
    p = vmulq_f32(p, t);
    const float32x4_t magnitude = vfmsq_f32(set(1.0F), p, exp4(vnegq_f32(vmulq_f32(x, x))));
    return vbslq_f32(vdupq_n_u32(0x80000000U), v, magnitude);
}

static inline float32x4_t act4(Act act, float32x4_t v, float32x4_t a, float32x4_t b) {
    switch (act) {
        case Act::none:
            return v;
        case Act::relu:
            return vmaxnmq_f32(v, set(0));
        case Act::silu:
            return vmulq_f32(v, sigmoid4(v));
        case Act::gelu: {
            const float32x4_t half = vmulq_f32(set(0.5F), v);
            return vfmaq_f32(half, half, erf4(vmulq_f32(v, set(0.70710678F))));
        }
        case Act::elu:
            return vbslq_f32(vcgtzq_f32(v), v, vsubq_f32(exp4(v), set(1.0F)));
        case Act::tanh: {
            const float32x4_t e = exp4(vaddq_f32(v, v));
            return vsubq_f32(set(1.0F), vdivq_f32(set(2.0F), vaddq_f32(e, set(1.0F))));
        }
        case Act::sigmoid:
            return sigmoid4(v);
        case Act::snake:
            return vfmaq_f32(v, b, sin_squared4(vmulq_f32(a, v)));
    }
    return v;
}

// The first `count` lanes, all four from 4 up, the others 0; nothing beyond them is read or
// written.
static inline float32x4_t load_lanes(const float* x, int count) {
    if (count >= 4) return vld1q_f32(x);
    float part[4] = {};
    for (int i = 0; i < count; ++i) part[i] = x[i];
    return vld1q_f32(part);
}
static inline void store_lanes(float* y, int count, float32x4_t v) {
    if (count >= 4) return vst1q_f32(y, v);
    float part[4];
    vst1q_f32(part, v);
    for (int i = 0; i < count; ++i) y[i] = part[i];
}

}  // namespace qt::neon
