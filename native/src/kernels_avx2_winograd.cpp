// Minimal filtering on 8 floats. Compiled with -mavx2 -mfma -mf16c: no shared inline functions.

#include "avx2_gemm.h"
#include "kernels_avx2_rows.h"
#include "winograd_lanes.h"

namespace qt {
namespace avx2 {
namespace {

struct Lanes {
    using Vec = __m256;
    static constexpr int kWidth = 8;
    static Vec set(float v) { return _mm256_set1_ps(v); }
    static Vec load(const float* x, int count) { return load_lanes(x, count); }
    static void store(float* y, int count, Vec v) { store_lanes(y, count, v); }
    static Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
    static Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
    static Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
    static Vec fnma(Vec a, Vec b, Vec c) { return _mm256_fnmadd_ps(a, b, c); }
    static void finish(const GemmArgs& g, int r, int o, int count, Vec v) {
        finish8(g, r, o, count, v);
    }
};

}  // namespace

void winograd_in(const WinogradInArgs& a) {
    winograd_in_lanes<Lanes>(a);
}
void winograd_out(const WinogradOutArgs& a) {
    winograd_out_lanes<Lanes>(a);
}

}  // namespace avx2
}  // namespace qt
