// The hot loops, one table of functions per instruction set.
//
// kernels_scalar.cpp is the definition: short, obvious, and the oracle of the others in
// tests/kernels_*_test.cpp. Two rules make the engine reproducible:
//   - the order in which one output is summed depends on the shape of that output alone, never on
//     how many rows, outputs or threads were computed with it: streamed == buffered and
//     1 thread == N threads, bit for bit (on one instruction set);
//   - no kernel reads or writes outside the ranges its comment names, whatever the alignment.
//
// Names: x inputs, w packed weights, y outputs; "row" is a time step or a token, channels are
// contiguous ("channels last": x [T, C]). Strides are in elements.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qt {

// Floating-point weights are packed in panels of 16 outputs: [ceil(n/16)][k][16]; outputs beyond
// n are zero. (quant.h packs.)
inline constexpr int kPanel = 16;

// int8 weights: groups of 8 outputs, k in super-blocks of 128 (4 blocks of 32 with one scale
// each), so that one group is one stream of whole cache lines:
//   [ceil(n/8)][ceil(k/128)] { uint16 half scale[4][8]; int8 q[4][8][8][4]; }  (1088 bytes)
//                                     block, output          block, k/4, output, k%4
inline constexpr int kQ8Rows = 8;
inline constexpr int kQ8Super = 128;
inline constexpr int kQ8SuperBytes = 64 + 1024;

// 4-bit weights, the same groups and blocks: value = scale * (q - 8), q 0..15.
//   { uint16 half scale[4][8]; uint8 q[4][4][8][4]; }  (576 bytes)
//                              block, pair, output, k%4: low nibbles k/4 = pair, high pair + 4
inline constexpr int kQ4SuperBytes = 64 + 512;

// 5- and 6-bit weights: the same with a plane of high bits behind each block's nibbles.
//   value = scale * (q - 16), q 0..31:
//   { uint16 half scale[4][8]; { uint8 q[4][8][4]; uint8 high[8][4]; }[4]; }  (704 bytes)
//                                                  output, k%4: bit k/4 is bit 4 of that q
//   value = scale * (q - 32), q 0..63:
//   { uint16 half scale[4][8]; { uint8 q[4][8][4]; uint8 high[2][8][4]; }[4]; }  (832 bytes)
//                          k/16, output, k%4: bits 2j and 2j+1, j = k/4%4, are bits 4 and 5
inline constexpr int kQ5SuperBytes = kQ4SuperBytes + 128;
inline constexpr int kQ6SuperBytes = kQ4SuperBytes + 256;

// int8 weights that meet float inputs (exact for Q8_0, Q5_0 and Q4_0): panels of 16 outputs, k in
// blocks of 32 with one scale each:
//   [ceil(n/16)][ceil(k/32)] { uint16 half scale[16]; int8 q[32][16]; }  (544 bytes)
inline constexpr int kW8Block = 32;
inline constexpr int kW8BlockBytes = 2 * kPanel + kW8Block * kPanel;

enum class WeightType : uint8_t { f32, f16, bf16, w8, q8, q6, q5, q4 };

enum class Act : uint8_t {
    none,
    relu,  // max(v, 0)
    silu,  // v / (1 + exp(-v))
    gelu,  // 0.5 v (1 + erf(v / sqrt 2))
    elu,   // v > 0 ? v : exp(v) - 1
    tanh,
    sigmoid,
    snake,  // v + b * sin(a*v)^2, per channel: a = exp(alpha), b = 1/(exp(beta)+1e-9)
};

// Implicit GEMM for linears, convolutions and transposed convolutions, channels last.
//   acc[r][o] = sum over tap j, channel c of x[r*x_row + j*x_tap + c] * w[j*c_in + c][o]
//   v = (acc + bias[o]) * scale[o] + residual[r*residual_row + o]
//   y[r*y_row + o] = v;   z[r*z_row + o] = act(v)
// for r < rows, o < n. bias, scale, residual, y, z may be null. y may equal residual, and z may
// equal y (then only act(v) remains). Sums run over k = j*c_in + c upwards, one term at a time.
//   Linear              taps 1, c_in = k, x_row = k
//   Conv k, dilation d  taps k, x_tap = d*c_in, x_row = stride*c_in, x begins (k-1)*d rows early
//   Transposed, k = 2s  taps 2 over x[t-1], x[t]; n = s*c_out, so a row of y is s output rows
struct GemmArgs {
    const float* x = nullptr;
    ptrdiff_t x_row = 0;
    ptrdiff_t x_tap = 0;
    int taps = 1;
    int c_in = 0;
    const void* w = nullptr;  // the panel of output 0 of this call
    int rows = 0;
    int n = 0;
    const float* bias = nullptr;   // [n]
    const float* scale = nullptr;  // [n]
    const float* residual = nullptr;
    ptrdiff_t residual_row = 0;
    float* y = nullptr;
    ptrdiff_t y_row = 0;
    Act act = Act::none;
    const float* act_a = nullptr;  // [n], snake only
    const float* act_b = nullptr;  // [n], snake only
    float* z = nullptr;
    ptrdiff_t z_row = 0;
};

// y[r][o] = residual[r][o] + sum over blocks b of (sum of x[r][32b+i] * q[o][32b+i]) * (xs[r][b] *
// scale[o][b]) The inner sum is exact in int32. x as written by quantize_q8.
struct GemmQ8Args {
    const int8_t* x = nullptr;  // [rows][q8_row_bytes(k)]
    ptrdiff_t x_row = 0;
    const float* xs = nullptr;  // [rows][q8_scales(k)]
    ptrdiff_t xs_row = 0;
    const uint8_t* w = nullptr;  // the group of output 0 of this call
    int k = 0;
    int rows = 0;
    int n = 0;
    const float* bias = nullptr;  // [n]
    const float* residual = nullptr;
    ptrdiff_t residual_row = 0;
    float* y = nullptr;
    ptrdiff_t y_row = 0;
};

static inline int q8_supers(int k) {
    return (k + kQ8Super - 1) / kQ8Super;
}
static inline int q8_blocks(int k) {
    return q8_supers(k) * 4;
}
// Per row: the scale of each block, then 8 * (sum of q) of each block: the zero of 4-bit weights,
// half that of 5-bit and a quarter of that of 6-bit ones.
static inline int q8_scales(int k) {
    return q8_blocks(k) * 2;
}
// Per block of 32: the values, then their magnitudes (for an unsigned x signed multiplication).
static inline int q8_row_bytes(int k) {
    return q8_supers(k) * kQ8Super * 2;
}

// One query head over n cached positions: scores = scale * q . k_i; out = softmax(scores) @ V.
struct AttnArgs {
    const float* q = nullptr;  // [d]
    const void* k = nullptr;   // position i at k + i*kv_row; float or half
    const void* v = nullptr;
    ptrdiff_t kv_row = 0;
    int n = 0;
    int d = 0;
    float scale = 0;
    float* scores = nullptr;  // scratch [n]
    float* out = nullptr;     // [d]
};

// y[r][c] = bias[c] + sum over taps j of w[j][c] * x[r*x_row + j*x_row + c]: a depthwise
// convolution of stride and dilation 1; w is [taps][channels].
struct DepthwiseArgs {
    const float* x = nullptr;
    ptrdiff_t x_row = 0;
    int taps = 0;
    int channels = 0;
    const float* w = nullptr;
    const float* bias = nullptr;
    int rows = 0;
    float* y = nullptr;
    ptrdiff_t y_row = 0;
};

// Convolutions of 7 taps by minimal filtering, F(4, 7): winograd.h. A tile makes 4 outputs of each
// channel, `dilation` rows apart, from 10 inputs, as far apart.
inline constexpr int kWinogradOut = 4;
inline constexpr int kWinogradTaps = 7;
inline constexpr int kWinogradIn = kWinogradOut + kWinogradTaps - 1;
// The points at which polynomials are multiplied: pairs +-p, then 0 and infinity.
inline constexpr int kWinogradPairs = (kWinogradIn - 2) / 2;

struct WinogradTile {
    int32_t row;   // its first output
    int32_t skip;  // so many outputs are somebody else's and not stored
};

// d[j] = x[(row + j*dilation)*x_row + c], with q over all pairs, and r over all but `part`:
//   part < kWinogradPairs:  e = sum of coefficients of prod (z - r^2) * d[2], d[4], d[6], d[8]
//                           f = p * the same of d[1], d[3], d[5], d[7]
//                           u[0] = e + f,  u[1] = e - f
//   part = kWinogradPairs:  u[0] = sum of coefficients of prod (z - q^2) * d[0], d[2], .. d[8]
//                           u[1] = the same of d[1], d[3], .. d[9]
// u[i] [n_tiles, channels].
struct WinogradInArgs {
    const float* x = nullptr;  // row 0: the first input of output row 0
    ptrdiff_t x_row = 0;
    int dilation = 1;
    const WinogradTile* tiles = nullptr;
    int n_tiles = 0;
    int channels = 0;
    int part = 0;
    float* u[2] = {};
};

// acc of the tile's output i = sum over pairs of p^i * (m[2k] + (-1)^i * m[2k+1])
//                              + (i = 0: m[8]) + (i = 3: m[9])
// for plane j at m + j*plane [n_tiles, n]; then as GemmArgs says, with r the output's row.
struct WinogradOutArgs {
    const float* m = nullptr;
    ptrdiff_t plane = 0;
    const WinogradTile* tiles = nullptr;
    int n_tiles = 0;
    int dilation = 1;
    GemmArgs out;  // its x, w and rows are not read
};

struct Kernels {
    const char* name;

    void (*gemm_f32)(const GemmArgs&);
    void (*gemm_f16)(const GemmArgs&);
    void (*gemm_bf16)(const GemmArgs&);
    void (*gemm_w8)(const GemmArgs&);
    void (*gemm_q8)(const GemmQ8Args&);
    void (*gemm_q6)(const GemmQ8Args&);
    void (*gemm_q5)(const GemmQ8Args&);
    void (*gemm_q4)(const GemmQ8Args&);

    // One row of k floats -> q [q8_row_bytes(k)], scales [q8_scales(k)]; the tail is zero.
    // scale = max|x| / 127 per 32; q = round to nearest even (x / scale), within -127..127.
    void (*quantize_q8)(const float* x, int k, int8_t* q, float* scales);

    void (*attention_f32)(const AttnArgs&);
    void (*attention_f16)(const AttnArgs&);

    void (*depthwise)(const DepthwiseArgs&);
    void (*winograd_in)(const WinogradInArgs&);
    void (*winograd_out)(const WinogradOutArgs&);

    // y = w * x / sqrt(mean(x^2) + eps); y may be x.
    void (*rms_norm)(const float* x, const float* w, float eps, int n, float* y);
    // y = (x - mean) / sqrt(var + eps) * w + b; y may be x.
    void (*layer_norm)(const float* x, const float* w, const float* b, float eps, int n, float* y);
    // y[i] = act(x[i]); a and b are [n], read by snake only; y may be x.
    void (*activate)(Act act, const float* x, const float* a, const float* b, int n, float* y);
    // y = silu(gate) * up; y may be either.
    void (*swiglu)(const float* gate, const float* up, int n, float* y);
    // NEOX rotation of one head in place: half = d/2, cos and sin [half].
    void (*rope)(float* x, const float* cos, const float* sin, int half);
    // x = softmax(x) in place.
    void (*softmax)(float* x, int n);
    // y += x
    void (*add)(const float* x, int n, float* y);
    float (*dot)(const float* a, const float* b, int n);
    void (*float_to_half_row)(const float* x, int n, uint16_t* y);
};

// The tables of this build that this machine can run, the best first, the scalar one last; a null
// ends the list.
const Kernels* const* kernel_tables();
const Kernels& scalar_kernels();

// The table of that name (scalar, avx2, avx512, neon) in the list, or else the best.
const Kernels& kernels_named(const char* name);

// The table that everything runs on: QT_ISA=scalar|avx2|avx512|neon in the environment asks for
// one (to compare them, or to stay clear of one); what this machine cannot run is ignored.
const Kernels& kernels();

}  // namespace qt
