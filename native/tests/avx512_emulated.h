// The intrinsics of src/kernels_avx512*.cpp on a machine without AVX-512: SIMDe's (libsimde-dev),
// and made of AVX2 those that its version 0.7.4 lacks.
#pragma once

#include <immintrin.h>
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

namespace missing {

static inline __m512 join_ps(__m256 low, __m256 high) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}
static inline __m512i join_si512(__m256i low, __m256i high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

static inline __m512 cvtph_ps(__m256i h) {
    return join_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(h)),
                   _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1)));
}
static inline __m512 cvtepi32_ps(__m512i v) {
    return join_ps(_mm256_cvtepi32_ps(_mm512_castsi512_si256(v)),
                   _mm256_cvtepi32_ps(_mm512_extracti64x4_epi64(v, 1)));
}
static inline __m512i cvtepi8_epi32(__m128i v) {
    return join_si512(_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)));
}
static inline __m512i cvtepu16_epi32(__m256i v) {
    return join_si512(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(v)),
                      _mm256_cvtepu16_epi32(_mm256_extracti128_si256(v, 1)));
}
static inline __m256 extractf32x8_ps(__m512 v) {
    return _mm256_castsi256_ps(_mm512_extracti64x4_epi64(_mm512_castps_si512(v), 1));
}

}  // namespace missing

#undef _mm512_cvtph_ps
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtepi8_epi32
#undef _mm512_cvtepu16_epi32
#undef _mm512_extractf32x8_ps
#define _mm512_cvtph_ps(h) missing::cvtph_ps(h)
#define _mm512_cvtepi32_ps(v) missing::cvtepi32_ps(v)
#define _mm512_cvtepi8_epi32(v) missing::cvtepi8_epi32(v)
#define _mm512_cvtepu16_epi32(v) missing::cvtepu16_epi32(v)
#define _mm512_extractf32x8_ps(v, half) missing::extractf32x8_ps(v)  // the upper half
