// The obvious version of every kernel: what the fast ones must compute.

#include <cmath>

#include "half.h"
#include "kernels.h"
#include "kernels_scalar_int.h"
#include "winograd_points.h"

namespace qt {
namespace {

float act_value(Act act, float v, float a, float b) {
    switch (act) {
        case Act::none:
            return v;
        case Act::relu:
            return v > 0 ? v : 0;
        case Act::silu:
            return v / (1 + std::exp(-v));
        case Act::gelu:
            return 0.5F * v * (1 + std::erf(v * 0.70710678118654752F));
        case Act::elu:
            return v > 0 ? v : std::expm1(v);
        case Act::tanh:
            return std::tanh(v);
        case Act::sigmoid:
            return 1 / (1 + std::exp(-v));
        case Act::snake: {
            const float s = std::sin(a * v);
            return v + b * (s * s);
        }
    }
    return v;
}

void activate(Act act, const float* x, const float* a, const float* b, int n, float* y) {
    const bool snake = act == Act::snake;
    for (int i = 0; i < n; ++i) y[i] = act_value(act, x[i], snake ? a[i] : 0, snake ? b[i] : 0);
}

struct F16 {
    uint16_t bits;
};
struct Bf16 {
    uint16_t bits;
};

// Each type: the bytes of a panel of k x 16 weights, and the weight of (k, output) in it.
struct F32Panel {
    static ptrdiff_t bytes(int k) { return ptrdiff_t{k} * kPanel * 4; }
    static float at(const uint8_t* panel, int k, int o) {
        return reinterpret_cast<const float*>(panel)[k * kPanel + o];
    }
};
struct F16Panel {
    static ptrdiff_t bytes(int k) { return ptrdiff_t{k} * kPanel * 2; }
    static float at(const uint8_t* panel, int k, int o) {
        return half_to_float(reinterpret_cast<const uint16_t*>(panel)[k * kPanel + o]);
    }
};
struct Bf16Panel {
    static ptrdiff_t bytes(int k) { return ptrdiff_t{k} * kPanel * 2; }
    static float at(const uint8_t* panel, int k, int o) {
        return bf16_to_float(reinterpret_cast<const uint16_t*>(panel)[k * kPanel + o]);
    }
};
struct W8Panel {
    static ptrdiff_t bytes(int k) {
        return ptrdiff_t{(k + kW8Block - 1) / kW8Block} * kW8BlockBytes;
    }
    static float at(const uint8_t* panel, int k, int o) {
        const uint8_t* block = panel + ptrdiff_t{k / kW8Block} * kW8BlockBytes;
        uint16_t half;
        __builtin_memcpy(&half, block + o * 2, 2);
        const auto* q = reinterpret_cast<const int8_t*>(block + kPanel * 2);
        return static_cast<float>(q[k % kW8Block * kPanel + o]) * half_to_float(half);
    }
};

// acc[16] of one row and one panel: the order of summation is k upwards.
template <typename W>
void panel_sums(const GemmArgs& g, const float* x, const uint8_t* panel, float* acc) {
    for (int o = 0; o < kPanel; ++o) acc[o] = 0;
    for (int j = 0; j < g.taps; ++j) {
        const float* xj = x + j * g.x_tap;
        for (int c = 0; c < g.c_in; ++c)
            for (int o = 0; o < kPanel; ++o) acc[o] += xj[c] * W::at(panel, j * g.c_in + c, o);
    }
}

// What follows the sums of row r, outputs [o0, o0 + width).
void finish(const GemmArgs& g, int r, int o0, int width, float* v) {
    for (int o = 0; o < width; ++o) {
        if (g.bias) v[o] += g.bias[o0 + o];
        if (g.scale) v[o] *= g.scale[o0 + o];
        if (g.residual) v[o] += g.residual[r * g.residual_row + o0 + o];
    }
    if (g.y)
        for (int o = 0; o < width; ++o) g.y[r * g.y_row + o0 + o] = v[o];
    if (g.z)
        activate(g.act, v, g.act_a ? g.act_a + o0 : nullptr, g.act_b ? g.act_b + o0 : nullptr,
                 width, g.z + r * g.z_row + o0);
}

template <typename W>
void gemm(const GemmArgs& g) {
    for (int o0 = 0; o0 < g.n; o0 += kPanel) {
        const uint8_t* w =
            static_cast<const uint8_t*>(g.w) + o0 / kPanel * W::bytes(g.taps * g.c_in);
        const int width = g.n - o0 < kPanel ? g.n - o0 : kPanel;
        for (int r = 0; r < g.rows; ++r) {
            float v[kPanel];
            panel_sums<W>(g, g.x + r * g.x_row, w, v);
            finish(g, r, o0, width, v);
        }
    }
}

void winograd_in(const WinogradInArgs& a) {
    const bool ends = a.part == kWinogradPairs;
    const double* product = kWinogradProducts[a.part].of;
    const float p = ends ? 1 : static_cast<float>(kWinogradPoints[a.part]);
    for (int t = 0; t < a.n_tiles; ++t)
        for (int c = 0; c < a.channels; ++c) {
            float even = 0;
            float odd = 0;
            for (int i = 0; i < (ends ? 5 : 4); ++i) {
                const int j = ends ? 2 * i : 2 * i + 1;
                const float* d = a.x + (a.tiles[t].row + ptrdiff_t{j} * a.dilation) * a.x_row + c;
                const float* next = d + a.dilation * a.x_row;
                even += static_cast<float>(product[i]) * (ends ? *d : *next);
                odd += static_cast<float>(product[i]) * (ends ? *next : *d);
            }
            const ptrdiff_t at = ptrdiff_t{t} * a.channels + c;
            a.u[0][at] = ends ? even : even + p * odd;
            a.u[1][at] = ends ? odd : even - p * odd;
        }
}

void winograd_out(const WinogradOutArgs& a) {
    for (int t = 0; t < a.n_tiles; ++t)
        for (int o = 0; o < a.out.n; ++o) {
            const auto m = [&](int plane) {
                return a.m[plane * a.plane + ptrdiff_t{t} * a.out.n + o];
            };
            float v[kWinogradOut] = {m(kWinogradIn - 2), 0, 0, m(kWinogradIn - 1)};
            for (int k = 0; k < kWinogradPairs; ++k) {
                float power = 1;
                for (int i = 0; i < kWinogradOut; ++i) {
                    v[i] += power * (i % 2 ? m(2 * k) - m(2 * k + 1) : m(2 * k) + m(2 * k + 1));
                    power *= static_cast<float>(kWinogradPoints[k]);
                }
            }
            for (int i = a.tiles[t].skip; i < kWinogradOut; ++i)
                finish(a.out, a.tiles[t].row + i * a.dilation, o, 1, v + i);
        }
}

void softmax(float* x, int n) {
    float largest = x[0];
    for (int i = 1; i < n; ++i)
        if (x[i] > largest) largest = x[i];
    float sum = 0;
    for (int i = 0; i < n; ++i) {
        x[i] = std::exp(x[i] - largest);
        sum += x[i];
    }
    const float inverse = 1 / sum;
    for (int i = 0; i < n; ++i) x[i] *= inverse;
}

float kv_value(float v) {
    return v;
}
float kv_value(F16 v) {
    return half_to_float(v.bits);
}

template <typename T>
void attention(const AttnArgs& a) {
    const T* k = static_cast<const T*>(a.k);
    const T* v = static_cast<const T*>(a.v);
    for (int i = 0; i < a.n; ++i) {
        float sum = 0;
        for (int c = 0; c < a.d; ++c) sum += a.q[c] * kv_value(k[i * a.kv_row + c]);
        a.scores[i] = sum * a.scale;
    }
    softmax(a.scores, a.n);
    for (int c = 0; c < a.d; ++c) a.out[c] = 0;
    for (int i = 0; i < a.n; ++i)
        for (int c = 0; c < a.d; ++c) a.out[c] += a.scores[i] * kv_value(v[i * a.kv_row + c]);
}

void depthwise(const DepthwiseArgs& d) {
    for (int r = 0; r < d.rows; ++r) {
        float* y = d.y + r * d.y_row;
        for (int c = 0; c < d.channels; ++c) y[c] = d.bias ? d.bias[c] : 0;
        for (int j = 0; j < d.taps; ++j) {
            const float* x = d.x + (r + j) * d.x_row;
            const float* w = d.w + static_cast<ptrdiff_t>(j) * d.channels;
            for (int c = 0; c < d.channels; ++c) y[c] += x[c] * w[c];
        }
    }
}

void rms_norm(const float* x, const float* w, float eps, int n, float* y) {
    float sum = 0;
    for (int i = 0; i < n; ++i) sum += x[i] * x[i];
    const float inverse = 1 / std::sqrt(sum / static_cast<float>(n) + eps);
    for (int i = 0; i < n; ++i) y[i] = w[i] * (x[i] * inverse);
}

void layer_norm(const float* x, const float* w, const float* b, float eps, int n, float* y) {
    float sum = 0;
    for (int i = 0; i < n; ++i) sum += x[i];
    const float mean = sum / static_cast<float>(n);
    float squares = 0;
    for (int i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const float inverse = 1 / std::sqrt(squares / static_cast<float>(n) + eps);
    for (int i = 0; i < n; ++i) y[i] = (x[i] - mean) * inverse * w[i] + b[i];
}

void swiglu(const float* gate, const float* up, int n, float* y) {
    for (int i = 0; i < n; ++i) y[i] = act_value(Act::silu, gate[i], 0, 0) * up[i];
}

void rope(float* x, const float* cos, const float* sin, int half) {
    for (int i = 0; i < half; ++i) {
        const float low = x[i];
        const float high = x[i + half];
        x[i] = low * cos[i] - high * sin[i];
        x[i + half] = high * cos[i] + low * sin[i];
    }
}

void add(const float* x, int n, float* y) {
    for (int i = 0; i < n; ++i) y[i] += x[i];
}

float dot(const float* a, const float* b, int n) {
    float sum = 0;
    for (int i = 0; i < n; ++i) sum += a[i] * b[i];
    return sum;
}

void float_to_half_row(const float* x, int n, uint16_t* y) {
    for (int i = 0; i < n; ++i) y[i] = float_to_half(x[i]);
}

constexpr Kernels kScalar = {
    .name = "scalar",
    .gemm_f32 = gemm<F32Panel>,
    .gemm_f16 = gemm<F16Panel>,
    .gemm_bf16 = gemm<Bf16Panel>,
    .gemm_w8 = gemm<W8Panel>,
    .gemm_q8 = scalar::gemm_q8,
    .gemm_q6 = scalar::gemm_q6,
    .gemm_q5 = scalar::gemm_q5,
    .gemm_q4 = scalar::gemm_q4,
    .quantize_q8 = scalar::quantize_q8,
    .attention_f32 = attention<float>,
    .attention_f16 = attention<F16>,
    .depthwise = depthwise,
    .winograd_in = winograd_in,
    .winograd_out = winograd_out,
    .rms_norm = rms_norm,
    .layer_norm = layer_norm,
    .activate = activate,
    .swiglu = swiglu,
    .rope = rope,
    .softmax = softmax,
    .add = add,
    .dot = dot,
    .float_to_half_row = float_to_half_row,
};

}  // namespace

const Kernels& scalar_kernels() {
    return kScalar;
}

}  // namespace qt
