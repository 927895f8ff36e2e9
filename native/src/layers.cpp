#include "layers.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "pack_int.h"

namespace qt {
namespace {

// A piece should cost far more than claiming it (about 0.1 us) and still leave enough pieces for
// every core: 20 to 100 us of work.
constexpr int64_t kPieceMacs = 1 << 20;
constexpr int64_t kPieceBytes = 128 << 10;
// Rows of x in one piece: with more, x falls out of the L2 cache before the next panel reads it.
constexpr int64_t kPieceRowBytes = 192 << 10;
constexpr int kTileRows = 6;  // of the gemm kernels

int divide_up(int64_t a, int64_t b) {
    return static_cast<int>((a + b - 1) / b);
}

// The packed type that holds a tensor's values exactly in the fewest bytes.
WeightType exact_type(const Tensor& tensor) {
    if (tensor.type == TensorType::f16) return WeightType::f16;
    if (tensor.type == TensorType::bf16) return WeightType::bf16;
    return exact_bits(tensor.type) != 0 ? WeightType::w8 : WeightType::f32;
}

// f(the tensor, or an f32 copy of it)
template <typename F>
Packed with_width(const Tensor& tensor, Width width, const F& f) {
    if (width == Width::kept || tensor.type == TensorType::f32) return f(tensor);
    const std::vector<float> floats = to_floats(tensor);
    Tensor wide = tensor;
    wide.type = TensorType::f32;
    wide.data = reinterpret_cast<const uint8_t*>(floats.data());
    wide.bytes = floats.size() * sizeof(float);
    return f(wide);
}

Packed pack_w8(Pool& pool, const std::vector<RowRef>& rows, int k) {
    Packed p;
    p.type = WeightType::w8;
    p.n = static_cast<int>(rows.size());
    p.k = k;
    const int units = divide_up(p.n, kPanel);
    p.data = Block(static_cast<size_t>(units) * p.unit_bytes());
    pool.parallel_for(units, [&](int u, int) {
        uint8_t* panel = p.data.as<uint8_t>() + static_cast<size_t>(u) * p.unit_bytes();
        for (int o = 0; o < kPanel && u * kPanel + o < p.n; ++o) {
            const RowRef& ref = rows[static_cast<size_t>(u * kPanel + o)];
            for (int b = 0; b < k / kW8Block; ++b) {
                uint8_t* block = panel + static_cast<ptrdiff_t>(b) * kW8BlockBytes;
                const Weights32 w = file_block(ref.tensor->type, ref.data(), b);
                std::memcpy(block + o * 2, &w.scale, sizeof w.scale);
                for (int i = 0; i < kW8Block; ++i)
                    block[2 * kPanel + i * kPanel + o] = static_cast<uint8_t>(w.q[i]);
            }
        }
    });
    return p;
}

}  // namespace

GemmArgs epilogue(const Layer& layer, const LayerIo& io, int r0, int r1, int o0, int o1) {
    const ptrdiff_t n = layer.n();
    const ptrdiff_t out = r0 * n + o0;
    const auto from = [&](const std::vector<float>& v) {
        return v.empty() ? nullptr : v.data() + o0;
    };
    GemmArgs g;
    g.rows = r1 - r0;
    g.n = o1 - o0;
    g.bias = from(layer.bias);
    g.scale = from(layer.scale);
    g.residual = io.residual ? io.residual + out : nullptr;
    g.y = io.y ? io.y + out : nullptr;
    g.z = io.z ? io.z + out : nullptr;
    g.residual_row = g.y_row = g.z_row = n;
    g.act = layer.act;
    g.act_a = from(layer.act_a);
    g.act_b = from(layer.act_b);
    return g;
}

void run_part(const Kernels& kernels, const Layer& layer, const LayerIo& io, int r0, int r1, int o0,
              int o1) {
    GemmArgs g = epilogue(layer, io, r0, r1, o0, o1);
    g.x_row = static_cast<ptrdiff_t>(layer.stride) * layer.c_in;
    g.x_tap = static_cast<ptrdiff_t>(layer.dilation) * layer.c_in;
    g.x = io.x + r0 * g.x_row;
    // Taps that lie side by side are one long row: the same sums in the same order.
    const bool side_by_side = layer.dilation == 1;
    g.taps = side_by_side ? 1 : layer.taps;
    g.c_in = side_by_side ? layer.taps * layer.c_in : layer.c_in;
    g.w = layer.w.at(o0);
    gemm_of(kernels, layer.w.type)(g);
}

Cut cut_for(const Layer& layer, int unit, int rows, double bytes) {
    const int64_t row_bytes = static_cast<int64_t>(layer.stride) * layer.c_in * 4;
    const int64_t fitting = kPieceRowBytes / row_bytes / kTileRows * kTileRows;
    Cut cut;
    cut.rows = rows;
    cut.row_block = static_cast<int>(
        std::clamp<int64_t>(fitting, 8 * kTileRows, std::max(rows, 8 * kTileRows)));
    cut.row_pieces = std::max(1, rows / cut.row_block);  // the last one takes the rest
    const int units = divide_up(layer.n(), unit);
    const int64_t unit_weights = static_cast<int64_t>(layer.w.k) * unit;
    const int for_work = divide_up(kPieceMacs, unit_weights * std::min(rows, cut.row_block));
    const auto unit_bytes = static_cast<int64_t>(static_cast<double>(unit_weights) * bytes);
    const int for_bytes = divide_up(kPieceBytes, std::max<int64_t>(1, unit_bytes));
    const int per_piece = std::clamp(std::max(for_work, for_bytes), 1, units);
    cut.n = layer.n();
    cut.out_block = per_piece * unit;
    cut.out_pieces = divide_up(units, per_piece);
    return cut;
}

void run(Pool& pool, const Kernels& kernels, const Layer& layer, const LayerIo& io) {
    const double bytes = static_cast<double>(layer.w.unit_bytes()) / layer.w.k / layer.w.unit();
    const Cut cut = cut_for(layer, layer.w.unit(), io.rows, bytes);
    pool.parallel_for(cut.pieces(), [&](int piece, int) {
        run_part(kernels, layer, io, cut.first_row(piece), cut.end_row(piece), cut.first_out(piece),
                 cut.end_out(piece));
    });
}

const float* mapped_floats(const Tensor& tensor) {
    const bool aligned = reinterpret_cast<uintptr_t>(tensor.data) % alignof(float) == 0;
    return tensor.type == TensorType::f32 && aligned ? reinterpret_cast<const float*>(tensor.data)
                                                     : nullptr;
}

std::vector<float> load_vector(const Gguf& file, const std::string& name, int n) {
    return to_floats(file.tensor(name, {n}));
}

Layer load_linears(Pool& pool, const Gguf& file, const std::vector<std::string>& names,
                   const std::vector<int>& n, int k) {
    std::vector<RowRef> rows;
    for (size_t i = 0; i < names.size(); ++i) {
        const Tensor& t = file.tensor(names[i] + ".weight", {n[i], k});
        for (int r = 0; r < n[i]; ++r) rows.push_back({&t, r});
    }
    WeightType type = exact_type(*rows.front().tensor);
    for (const RowRef& r : rows)
        if (exact_type(*r.tensor) != type) type = WeightType::f32;
    Layer layer;
    layer.c_in = k;
    if (type == WeightType::w8) {
        layer.w = pack_w8(pool, rows, k);
        return layer;
    }
    layer.w = pack_filled(pool, type, static_cast<int>(rows.size()), k, [&](int o, float* row) {
        const RowRef& ref = rows[static_cast<size_t>(o)];
        const Tensor& t = *ref.tensor;
        dequantize(t.type, t.data + static_cast<size_t>(ref.row) * t.row_bytes(), k, row);
    });
    return layer;
}

Layer load_linear(Pool& pool, const Gguf& file, const std::string& name, int n, int k, bool bias) {
    Layer layer = load_linears(pool, file, {name}, {n}, k);
    if (bias) layer.bias = load_vector(file, name + ".bias", n);
    return layer;
}

Layer load_conv(Pool& pool, const Gguf& file, const std::string& name, int c_out, int c_in,
                int taps, bool bias, Width width) {
    Layer layer;
    layer.taps = taps;
    layer.c_in = c_in;
    layer.w = with_width(file.tensor(name + ".weight", {c_out, c_in, taps}), width,
                         [&](const Tensor& t) { return pack_conv(pool, t); });
    if (bias) layer.bias = load_vector(file, name + ".bias", c_out);
    return layer;
}

Layer load_conv_transposed(Pool& pool, const Gguf& file, const std::string& name, int c_out,
                           int c_in, int taps, int stride, Width width) {
    Layer layer;
    layer.taps = taps / stride;
    layer.c_in = c_in;
    layer.w = with_width(file.tensor(name + ".weight", {c_in, c_out, taps}), width,
                         [&](const Tensor& t) { return pack_conv_transposed(pool, t, stride); });
    const std::vector<float> bias = load_vector(file, name + ".bias", c_out);
    for (int j = 0; j < stride; ++j) layer.bias.insert(layer.bias.end(), bias.begin(), bias.end());
    return layer;
}

void add_snake(const Gguf& file, const std::string& name, int channels, Layer& layer) {
    const std::vector<float> alpha = load_vector(file, name + ".alpha", channels);
    const std::vector<float> beta = load_vector(file, name + ".beta", channels);
    layer.act = Act::snake;
    layer.act_a.resize(static_cast<size_t>(layer.n()));
    layer.act_b.resize(static_cast<size_t>(layer.n()));
    for (size_t i = 0; i < layer.act_a.size(); ++i) {
        layer.act_a[i] = std::exp(alpha[i % alpha.size()]);
        layer.act_b[i] = 1.0F / (std::exp(beta[i % beta.size()]) + 1e-9F);
    }
}

}  // namespace qt
