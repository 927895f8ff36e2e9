// AVX2 versions of everything that works along one row: norms, activations, attention.
// Tails are masked, never read past. Compiled with -mavx2 -mfma -mf16c: no shared inline functions.

#include "kernels_avx2_rows.h"

#include "avx2_math.h"

namespace qt::avx2 {
namespace {

__m256 zero() {
    return _mm256_setzero_ps();
}

// f(i, count) for i in steps of 8, the last count below 8.
template <typename F>
void by_eights(int n, const F& f) {
    int i = 0;
    for (; i + 8 <= n; i += 8) f(i, 8);
    if (i < n) f(i, n - i);
}

__m256 load8(const float* p, int count) {
    return load_lanes(p, count);
}
__m256 load8(const uint16_t* p, int count) {
    if (count >= 8) return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    alignas(16) uint16_t part[8] = {};
    for (int i = 0; i < count; ++i) part[i] = p[i];
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(part)));
}

// N positions at once hide the latency of the sum; each position is summed in the same order.
template <int N, typename T>
void scores_of(const AttnArgs& a, const T* k, float* scores) {
    __m256 sum[N];
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) sum[j] = zero();
    by_eights(a.d, [&](int c, int count) {
        const __m256 q = load8(a.q + c, count);
#pragma GCC unroll 8
        for (int j = 0; j < N; ++j)
            sum[j] = _mm256_fmadd_ps(q, load8(k + j * a.kv_row + c, count), sum[j]);
    });
    for (int j = 0; j < N; ++j) scores[j] = sum8(sum[j]) * a.scale;
}

// out[0..8N) of the channels from c: sum over positions, in order.
template <int N, typename T>
void values_of(const AttnArgs& a, const T* v, int c, int last_count) {
    __m256 out[N];
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) out[j] = zero();
    for (int i = 0; i < a.n; ++i) {
        const __m256 s = _mm256_broadcast_ss(a.scores + i);
        const T* row = v + i * a.kv_row + c;
#pragma GCC unroll 8
        for (int j = 0; j < N; ++j)
            out[j] = _mm256_fmadd_ps(s, load8(row + j * 8, j == N - 1 ? last_count : 8), out[j]);
    }
    for (int j = 0; j < N; ++j) store_lanes(a.out + c + j * 8, j == N - 1 ? last_count : 8, out[j]);
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
    for (; c + 64 <= a.d; c += 64) values_of<8>(a, v, c, 8);
    for (; c + 8 <= a.d; c += 8) values_of<1>(a, v, c, 8);
    if (c < a.d) values_of<1>(a, v, c, a.d - c);
}

float largest_magnitude(__m256 v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_shuffle_ps(m, m, 1));
    return _mm_cvtss_f32(m);
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
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (int b = 0; b < blocks; ++b) {
        __m256 v[4];
        __m256 most = zero();
        for (int j = 0; j < 4; ++j) {
            const int left = k - b * 32 - j * 8;
            v[j] = left <= 0 ? zero() : load_lanes(x + b * 32 + j * 8, left < 8 ? left : 8);
            most = _mm256_max_ps(most, _mm256_andnot_ps(set(-0.0F), v[j]));
        }
        const float largest = largest_magnitude(most);
        scales[b] = largest / 127;
        const __m256 inverse = set(largest > 0 ? 127 / largest : 0);
        __m256i n[4];
        for (int j = 0; j < 4; ++j) n[j] = _mm256_cvtps_epi32(_mm256_mul_ps(v[j], inverse));
        const __m256i low = _mm256_packs_epi32(n[0], n[1]);
        const __m256i high = _mm256_packs_epi32(n[2], n[3]);
        __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
        bytes = _mm256_max_epi8(bytes, _mm256_set1_epi8(-127));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + b * 64), bytes);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + b * 64 + 32), _mm256_abs_epi8(bytes));
        // Sums of 8 bytes each, offset to be unsigned.
        const __m256i sums =
            _mm256_sad_epu8(_mm256_add_epi8(bytes, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
        const __m128i halves =
            _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
        const int sum =
            static_cast<int>(_mm_extract_epi64(halves, 0) + _mm_extract_epi64(halves, 1)) -
            32 * 128;
        scales[blocks + b] = static_cast<float>(8 * sum);
    }
}

void depthwise(const DepthwiseArgs& d) {
    for (int r = 0; r < d.rows; ++r) {
        by_eights(d.channels, [&](int c, int count) {
            __m256 sum = d.bias ? load_lanes(d.bias + c, count) : zero();
            for (int j = 0; j < d.taps; ++j) {
                const __m256 x = load_lanes(d.x + (r + j) * d.x_row + c, count);
                const __m256 w =
                    load_lanes(d.w + static_cast<ptrdiff_t>(j) * d.channels + c, count);
                sum = _mm256_fmadd_ps(x, w, sum);
            }
            store_lanes(d.y + r * d.y_row + c, count, sum);
        });
    }
}

void rms_norm(const float* x, const float* w, float eps, int n, float* y) {
    const float mean = dot(x, x, n) / static_cast<float>(n);
    const __m256 inverse = set(1 / __builtin_sqrtf(mean + eps));
    by_eights(n, [&](int i, int count) {
        const __m256 v = _mm256_mul_ps(load_lanes(x + i, count), inverse);
        store_lanes(y + i, count, _mm256_mul_ps(load_lanes(w + i, count), v));
    });
}

void layer_norm(const float* x, const float* w, const float* b, float eps, int n, float* y) {
    __m256 sum = zero();
    by_eights(n, [&](int i, int count) { sum = _mm256_add_ps(sum, load_lanes(x + i, count)); });
    const __m256 mean = set(sum8(sum) / static_cast<float>(n));
    __m256 squares = zero();
    by_eights(n, [&](int i, int count) {
        // Masked lanes must not add mean^2.
        __m256 v = _mm256_sub_ps(load_lanes(x + i, count), mean);
        if (count < 8) v = _mm256_and_ps(v, _mm256_castsi256_ps(lanes(count)));
        squares = _mm256_fmadd_ps(v, v, squares);
    });
    const __m256 inverse = set(1 / __builtin_sqrtf(sum8(squares) / static_cast<float>(n) + eps));
    by_eights(n, [&](int i, int count) {
        __m256 v = _mm256_mul_ps(_mm256_sub_ps(load_lanes(x + i, count), mean), inverse);
        v = _mm256_mul_ps(v, load_lanes(w + i, count));
        store_lanes(y + i, count, _mm256_add_ps(v, load_lanes(b + i, count)));
    });
}

void activate(Act act, const float* x, const float* a, const float* b, int n, float* y) {
    const bool snake = act == Act::snake;
    by_eights(n, [&](int i, int count) {
        const __m256 va = snake ? load_lanes(a + i, count) : zero();
        const __m256 vb = snake ? load_lanes(b + i, count) : zero();
        store_lanes(y + i, count, act8(act, load_lanes(x + i, count), va, vb));
    });
}

void swiglu(const float* gate, const float* up, int n, float* y) {
    by_eights(n, [&](int i, int count) {
        const __m256 g = load_lanes(gate + i, count);
        store_lanes(y + i, count,
                    _mm256_mul_ps(_mm256_mul_ps(g, sigmoid8(g)), load_lanes(up + i, count)));
    });
}

void rope(float* x, const float* cos, const float* sin, int half) {
    by_eights(half, [&](int i, int count) {
        const __m256 low = load_lanes(x + i, count);
        const __m256 high = load_lanes(x + half + i, count);
        const __m256 c = load_lanes(cos + i, count);
        const __m256 s = load_lanes(sin + i, count);
        store_lanes(x + i, count, _mm256_fmsub_ps(low, c, _mm256_mul_ps(high, s)));
        store_lanes(x + half + i, count, _mm256_fmadd_ps(high, c, _mm256_mul_ps(low, s)));
    });
}

void softmax(float* x, int n) {
    __m256 most = set(x[0]);
    by_eights(n, [&](int i, int count) {
        const __m256 v = load_lanes(x + i, count);
        // Masked lanes hold 0, which may be more than every real value.
        const __m256 in =
            count < 8 ? _mm256_blendv_ps(most, v, _mm256_castsi256_ps(lanes(count))) : v;
        most = _mm256_max_ps(most, in);
    });
    const __m256 top = set(largest_magnitude(most));
    __m256 sum = zero();
    by_eights(n, [&](int i, int count) {
        __m256 e = exp8(_mm256_sub_ps(load_lanes(x + i, count), top));
        if (count < 8) e = _mm256_and_ps(e, _mm256_castsi256_ps(lanes(count)));
        store_lanes(x + i, count, e);
        sum = _mm256_add_ps(sum, e);
    });
    const __m256 inverse = set(1 / sum8(sum));
    by_eights(n, [&](int i, int count) {
        store_lanes(x + i, count, _mm256_mul_ps(load_lanes(x + i, count), inverse));
    });
}

void add(const float* x, int n, float* y) {
    by_eights(n, [&](int i, int count) {
        store_lanes(y + i, count,
                    _mm256_add_ps(load_lanes(y + i, count), load_lanes(x + i, count)));
    });
}

float dot(const float* a, const float* b, int n) {
    __m256 sum[4] = {zero(), zero(), zero(), zero()};
    int i = 0;
    for (; i + 32 <= n; i += 32)
        for (int j = 0; j < 4; ++j)
            sum[j] = _mm256_fmadd_ps(_mm256_loadu_ps(a + i + j * 8), _mm256_loadu_ps(b + i + j * 8),
                                     sum[j]);
    for (int j = 0; i < n; i += 8, ++j) {
        const int count = n - i < 8 ? n - i : 8;
        sum[j] = _mm256_fmadd_ps(load_lanes(a + i, count), load_lanes(b + i, count), sum[j]);
    }
    return sum8(_mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3])));
}

void float_to_half_row(const float* x, int n, uint16_t* y) {
    by_eights(n, [&](int i, int count) {
        alignas(16) uint16_t part[8];
        const __m128i h = _mm256_cvtps_ph(load_lanes(x + i, count), _MM_FROUND_TO_NEAREST_INT);
        if (count >= 8) {
            _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i), h);
        } else {
            _mm_store_si128(reinterpret_cast<__m128i*>(part), h);
            for (int j = 0; j < count; ++j) y[i + j] = part[j];
        }
    });
}

}  // namespace qt::avx2
