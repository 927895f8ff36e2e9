#include "winograd.h"

#include <algorithm>

#include "winograd_points.h"

namespace qt {
namespace {

// Outputs of a piece when rows alone do not make enough of them.
constexpr int kPieceOutputs = 6 * kPanel;

// What one tap weighs in one of the 10 products: the interpolation through the points, each the
// power of a point over its distances from the others; the last is the leading coefficient.
double tap_weight(int plane, int tap) {
    if (plane == kWinogradIn - 1) return tap == kWinogradTaps - 1;
    double points[kWinogradIn - 1] = {};  // the one at 2 * kWinogradPairs is 0
    for (int k = 0; k < kWinogradPairs; ++k) {
        points[2 * k] = kWinogradPoints[k];
        points[2 * k + 1] = -kWinogradPoints[k];
    }
    double weight = 1;
    for (int i = 0; i < tap; ++i) weight *= points[plane];
    for (int k = 0; k < kWinogradIn - 1; ++k)
        if (k != plane) weight /= points[plane] - points[k];
    return weight;
}

}  // namespace

double WinogradConv::mul_adds(int rows) const {
    const auto tiles = winograd_tiles(0, rows, layer.dilation).size();
    return static_cast<double>(tiles) * kWinogradIn * layer.n() * layer.c_in;
}

std::vector<WinogradTile> winograd_tiles(int r0, int r1, int dilation) {
    std::vector<WinogradTile> tiles;
    for (int phase = r0; phase < std::min(r0 + dilation, r1); ++phase) {
        const int count = (r1 - phase + dilation - 1) / dilation;
        for (int i = 0; i < count; i += kWinogradOut) {
            const int back = std::max(0, i + kWinogradOut - count);
            tiles.push_back({phase + (i - back) * dilation, back});
        }
    }
    return tiles;
}

WinogradConv pack_winograd(Pool& pool, const float* w, int c_out, int c_in, int dilation) {
    WinogradConv conv;
    conv.layer.taps = kWinogradTaps;
    conv.layer.dilation = dilation;
    conv.layer.c_in = c_in;
    conv.layer.w.n = c_out;
    conv.layer.w.k = c_in * kWinogradTaps;
    for (int plane = 0; plane < kWinogradIn; ++plane) {
        double weights[kWinogradTaps];
        for (int tap = 0; tap < kWinogradTaps; ++tap) weights[tap] = tap_weight(plane, tap);
        conv.planes[plane] =
            pack_filled(pool, WeightType::f32, c_out, c_in, [&](int o, float* row) {
                const float* taps = w + static_cast<ptrdiff_t>(o) * c_in * kWinogradTaps;
                for (int c = 0; c < c_in; ++c, taps += kWinogradTaps) {
                    double sum = 0;
                    for (int tap = 0; tap < kWinogradTaps; ++tap) sum += weights[tap] * taps[tap];
                    row[c] = static_cast<float>(sum);
                }
            });
    }
    return conv;
}

WinogradConv load_conv_winograd(Pool& pool, const Gguf& file, const std::string& name, int c_out,
                                int c_in, int dilation, bool bias) {
    const std::vector<float> w =
        to_floats(file.tensor(name + ".weight", {c_out, c_in, kWinogradTaps}));
    WinogradConv conv = pack_winograd(pool, w.data(), c_out, c_in, dilation);
    if (bias) conv.layer.bias = load_vector(file, name + ".bias", c_out);
    return conv;
}

void run_part(const Kernels& kernels, const WinogradConv& conv, const LayerIo& io, int r0, int r1,
              int o0, int o1) {
    const Layer& layer = conv.layer;
    const std::vector<WinogradTile> tiles = winograd_tiles(r0, r1, layer.dilation);
    const auto n_tiles = static_cast<ptrdiff_t>(tiles.size());
    const ptrdiff_t in = n_tiles * layer.c_in;
    const ptrdiff_t out = n_tiles * (o1 - o0);
    thread_local std::vector<float> scratch;
    if (scratch.size() < static_cast<size_t>(2 * in + kWinogradIn * out))
        scratch.resize(static_cast<size_t>(2 * in + kWinogradIn * out));
    float* u = scratch.data();
    float* m = u + 2 * in;
    for (int part = 0; part <= kWinogradPairs; ++part) {
        kernels.winograd_in({.x = io.x,
                             .x_row = layer.c_in,
                             .dilation = layer.dilation,
                             .tiles = tiles.data(),
                             .n_tiles = static_cast<int>(n_tiles),
                             .channels = layer.c_in,
                             .part = part,
                             .u = {u, u + in}});
        for (int i = 0; i < 2; ++i) {
            GemmArgs g;
            g.x = u + i * in;
            g.x_row = g.c_in = layer.c_in;
            g.w = conv.planes[2 * part + i].at(o0);
            g.rows = static_cast<int>(n_tiles);
            g.n = o1 - o0;
            g.y = m + (2 * part + i) * out;
            g.y_row = o1 - o0;
            kernels.gemm_f32(g);
        }
    }
    kernels.winograd_out({.m = m,
                          .plane = out,
                          .tiles = tiles.data(),
                          .n_tiles = static_cast<int>(n_tiles),
                          .dilation = layer.dilation,
                          .out = epilogue(layer, io, 0, r1, o0, o1)});
}

void run(Pool& pool, const Kernels& kernels, const WinogradConv& conv, const LayerIo& io,
         int frame_rows) {
    const int n = conv.layer.n();
    const int frames = io.rows / frame_rows;
    const int cuts = (n + kPieceOutputs - 1) / kPieceOutputs;
    // Frames side by side: they read the same weights.
    pool.parallel_for(frames * cuts, [&](int piece, int) {
        const int r0 = piece % frames * frame_rows;
        const int o0 = piece / frames * kPieceOutputs;
        run_part(kernels, conv, io, r0, r0 + frame_rows, o0, std::min(n, o0 + kPieceOutputs));
    });
}

}  // namespace qt
