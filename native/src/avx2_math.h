// exp, sin^2, erf and the activations on 8 floats. Absolute error at most about 2e-7 (gelu: of v).
// Everything is static: this header is only for the files compiled with AVX2 (CMakeLists.txt).
#pragma once

#include <immintrin.h>

#include "half.h"
#include "kernels.h"

namespace qt::avx2 {

static inline __m256 set(float v) {
    return _mm256_set1_ps(v);
}

// exp by 2^n * p(r), r within +-ln2/2; arguments outside -87..88 saturate, NaN stays.
static inline __m256 exp8(__m256 x) {
    x = _mm256_max_ps(set(-87.0F), _mm256_min_ps(set(88.0F), x));
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, set(1.44269504F)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    // ln 2 in two parts, the first with few bits so that n * part is exact.
    __m256 r = _mm256_fnmadd_ps(n, set(0.693359375F), x);
    r = _mm256_fnmadd_ps(n, set(-2.12194440e-4F), r);
    // Taylor to r^7: the rest is below 1e-8 for |r| <= 0.35.
    __m256 p = set(1.0F / 5040);
    p = _mm256_fmadd_ps(p, r, set(1.0F / 720));
    p = _mm256_fmadd_ps(p, r, set(1.0F / 120));
    p = _mm256_fmadd_ps(p, r, set(1.0F / 24));
    p = _mm256_fmadd_ps(p, r, set(1.0F / 6));
    p = _mm256_fmadd_ps(p, r, set(0.5F));
    p = _mm256_fmadd_ps(p, r, set(1.0F));
    p = _mm256_fmadd_ps(p, r, set(1.0F));
    const __m256i e =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(p, _mm256_castsi256_ps(e));
}

// sin(y)^2: the period is pi, so the sign of the reduced sine does not matter.
static inline __m256 sin_squared8(__m256 y) {
    const __m256 magnitude = _mm256_andnot_ps(set(-0.0F), y);
    if (_mm256_movemask_ps(_mm256_cmp_ps(magnitude, set(1e6F), _CMP_GT_OQ))) {
        // Too large for the three-part reduction; no trained model gets here.
        alignas(32) float v[8];
        _mm256_store_ps(v, y);
        for (float& f : v) {
            const float s = __builtin_sinf(f);
            f = s * s;
        }
        return _mm256_load_ps(v);
    }
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(y, set(0.318309886F)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, set(3.140625F), y);
    r = _mm256_fnmadd_ps(n, set(9.67502593994140625e-4F), r);
    r = _mm256_fnmadd_ps(n, set(1.509957990978376432e-7F), r);
    // Taylor of sine to r^11: the rest is 6e-8 at pi/2.
    const __m256 r2 = _mm256_mul_ps(r, r);
    __m256 p = set(-1.0F / 39916800);
    p = _mm256_fmadd_ps(p, r2, set(1.0F / 362880));
    p = _mm256_fmadd_ps(p, r2, set(-1.0F / 5040));
    p = _mm256_fmadd_ps(p, r2, set(1.0F / 120));
    p = _mm256_fmadd_ps(p, r2, set(-1.0F / 6));
    const __m256 s = _mm256_fmadd_ps(_mm256_mul_ps(p, r2), r, r);
    return _mm256_mul_ps(s, s);
}

static inline __m256 sigmoid8(__m256 v) {
    const __m256 e = exp8(_mm256_sub_ps(_mm256_setzero_ps(), v));
    return _mm256_div_ps(set(1.0F), _mm256_add_ps(set(1.0F), e));
}

// Abramowitz and Stegun 7.1.26: erf(x) = 1 - p(t) exp(-x^2), t = 1/(1 + 0.3275911 x); |error|
// <= 1.5e-7.
static inline __m256 erf8(__m256 v) {
    const __m256 sign = _mm256_and_ps(set(-0.0F), v);
    const __m256 x = _mm256_andnot_ps(set(-0.0F), v);
    const __m256 t = _mm256_div_ps(set(1.0F), _mm256_fmadd_ps(set(0.3275911F), x, set(1.0F)));
    __m256 p = set(1.061405429F);
    p = _mm256_fmadd_ps(p, t, set(-1.453152027F));
    p = _mm256_fmadd_ps(p, t, set(1.421413741F));
    p = _mm256_fmadd_ps(p, t, set(-0.284496736F));
    p = _mm256_fmadd_ps(p, t, set(0.254829592F));
    p = _mm256_mul_ps(p, t);
    const __m256 e = exp8(_mm256_sub_ps(_mm256_setzero_ps(), _mm256_mul_ps(x, x)));
    return _mm256_or_ps(sign, _mm256_fnmadd_ps(p, e, set(1.0F)));
}

static inline __m256 act8(Act act, __m256 v, __m256 a, __m256 b) {
    switch (act) {
        case Act::none:
            return v;
        case Act::relu:
            return _mm256_max_ps(v, _mm256_setzero_ps());
        case Act::silu:
            return _mm256_mul_ps(v, sigmoid8(v));
        case Act::gelu: {
            const __m256 half = _mm256_mul_ps(set(0.5F), v);
            return _mm256_fmadd_ps(half, erf8(_mm256_mul_ps(v, set(0.70710678F))), half);
        }
        case Act::elu: {
            const __m256 negative = _mm256_sub_ps(exp8(v), set(1.0F));
            return _mm256_blendv_ps(negative, v, _mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_GT_OQ));
        }
        case Act::tanh: {
            const __m256 e = exp8(_mm256_add_ps(v, v));
            return _mm256_sub_ps(set(1.0F), _mm256_div_ps(set(2.0F), _mm256_add_ps(e, set(1.0F))));
        }
        case Act::sigmoid:
            return sigmoid8(v);
        case Act::snake:
            return _mm256_fmadd_ps(b, sin_squared8(_mm256_mul_ps(a, v)), v);
    }
    return v;
}

// The first `count` (0..8) lanes; nothing beyond them is read or written.
static inline __m256i lanes(int count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline __m256 load_lanes(const float* x, int count) {
    return count >= 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, lanes(count));
}
static inline void store_lanes(float* y, int count, __m256 v) {
    if (count >= 8)
        _mm256_storeu_ps(y, v);
    else
        _mm256_maskstore_ps(y, lanes(count), v);
}

static inline float sum8(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    s = _mm_add_ss(s, _mm_shuffle_ps(s, s, 1));
    return _mm_cvtss_f32(s);
}

}  // namespace qt::avx2
