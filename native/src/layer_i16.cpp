#include "layer_i16.h"

#include <algorithm>
#include <cmath>

namespace qt {
namespace {

// Row o of a panel [k/2][16][2], from weights [c_in, taps] with k = tap*c_in + c. Returns the
// scale.
float pack_row(const float* w, int c_in, int taps, int o, int16_t* panel) {
    const int k = c_in * taps;
    float largest = 0;
    for (int i = 0; i < k; ++i) largest = std::max(largest, std::fabs(w[i]));
    const float inverse = largest > 0 ? kI16Max / largest : 0;
    for (int tap = 0; tap < taps; ++tap)
        for (int c = 0; c < c_in; ++c) {
            const int i = tap * c_in + c;
            const float q = std::nearbyint(w[c * taps + tap] * inverse);
            panel[(i / 2 * kPanel + o) * 2 + i % 2] = static_cast<int16_t>(q);
        }
    return largest / kI16Max;
}

}  // namespace

LayerI16 load_conv_i16(Pool& pool, const Gguf& file, const std::string& name, int c_out, int c_in,
                       int taps, bool bias) {
    const std::vector<float> w = to_floats(file.tensor(name + ".weight", {c_out, c_in, taps}));
    const int k = c_in * taps;
    const int panels = (c_out + kPanel - 1) / kPanel;
    const ptrdiff_t panel_size = static_cast<ptrdiff_t>(k) * kPanel;
    LayerI16 l;
    l.layer.taps = taps;
    l.layer.c_in = c_in;
    l.layer.w.n = c_out;
    l.layer.w.k = k;
    if (bias) l.layer.bias = load_vector(file, name + ".bias", c_out);
    l.w = Block(static_cast<size_t>(panels) * static_cast<size_t>(panel_size) * sizeof(int16_t));
    l.w_scale.resize(static_cast<size_t>(c_out));
    pool.parallel_for(panels, [&](int p, int) {
        int16_t* panel = l.w.as<int16_t>() + p * panel_size;
        for (int o = p * kPanel; o < std::min(c_out, (p + 1) * kPanel); ++o)
            l.w_scale[static_cast<size_t>(o)] =
                pack_row(w.data() + static_cast<ptrdiff_t>(o) * k, c_in, taps, o % kPanel, panel);
    });
    return l;
}

void quantize_rows(Pool& pool, const Kernels& kernels, const float* x, int rows, int channels,
                   int16_t* q, float* scale) {
    constexpr int kRows = 64;  // per piece
    pool.parallel_for((rows + kRows - 1) / kRows, [&](int piece, int) {
        for (int r = piece * kRows; r < std::min(rows, (piece + 1) * kRows); ++r) {
            const ptrdiff_t at = static_cast<ptrdiff_t>(r) * channels;
            kernels.quantize_i16(x + at, channels, q + at, scale + r);
        }
    });
}

void run_part(const Kernels& kernels, const LayerI16& layer, const LayerI16Io& io, int r0, int r1,
              int o0, int o1) {
    const Layer& l = layer.layer;
    GemmI16Args g;
    g.x_row = static_cast<ptrdiff_t>(l.stride) * l.c_in;
    g.x_tap = static_cast<ptrdiff_t>(l.dilation) * l.c_in;
    g.x = io.x + r0 * g.x_row;
    g.x_scale = io.x_scale + r0;
    g.dilation = l.dilation;
    g.taps = l.taps;
    g.c_in = l.c_in;
    g.w = layer.w.as<int16_t>() + static_cast<ptrdiff_t>(o0) * l.w.k;
    g.w_scale = layer.w_scale.data() + o0;
    g.out = epilogue(l, io.out, r0, r1, o0, o1);
    kernels.gemm_i16(g);
}

void run(Pool& pool, const Kernels& kernels, const LayerI16& layer, const LayerI16Io& io) {
    const Cut cut = cut_for(layer.layer, kPanel, io.out.rows, sizeof(int16_t));
    pool.parallel_for(cut.pieces(), [&](int piece, int) {
        run_part(kernels, layer, io, cut.first_row(piece), cut.end_row(piece), cut.first_out(piece),
                 cut.end_out(piece));
    });
}

}  // namespace qt
