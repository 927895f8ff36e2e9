// Minimal filtering on 4 floats.

#include "kernels_neon.h"
#include "neon_gemm.h"
#include "winograd_lanes.h"

namespace qt::neon {
namespace {

struct Lanes {
    using Vec = float32x4_t;
    static constexpr int kWidth = 4;
    static Vec set(float v) { return vdupq_n_f32(v); }
    static Vec load(const float* x, int count) { return load_lanes(x, count); }
    static void store(float* y, int count, Vec v) { store_lanes(y, count, v); }
    static Vec add(Vec a, Vec b) { return vaddq_f32(a, b); }
    static Vec sub(Vec a, Vec b) { return vsubq_f32(a, b); }
    static Vec fma(Vec a, Vec b, Vec c) { return vfmaq_f32(c, a, b); }
    static Vec fnma(Vec a, Vec b, Vec c) { return vfmsq_f32(c, a, b); }
    static void finish(const GemmArgs& g, int r, int o, int count, Vec v) {
        finish4(g, r, o, count, v);
    }
};

}  // namespace

void winograd_in(const WinogradInArgs& a) {
    winograd_in_lanes<Lanes>(a);
}
void winograd_out(const WinogradOutArgs& a) {
    winograd_out_lanes<Lanes>(a);
}

}  // namespace qt::neon
