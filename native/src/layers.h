// The layer all codec and encoder networks are made of: a matrix product, convolution or transposed
// convolution with everything that follows it, cut into pieces for the threads.
#pragma once

#include <string>
#include <vector>

#include "gguf.h"
#include "kernels.h"
#include "quant.h"
#include "threads.h"

namespace qt {

// v = (W x + bias) * scale + residual;  y = v;  z = act(v).   Channels last: x [rows, c_in].
struct Layer {
    Packed w;
    int taps = 1;
    int c_in = 0;
    int dilation = 1;
    int stride = 1;            // of a convolution: input rows per output row
    std::vector<float> bias;   // [n] or empty
    std::vector<float> scale;  // [n] or empty
    Act act = Act::none;
    std::vector<float> act_a, act_b;  // [n], snake only

    int n() const { return w.n; }
    int history() const { return (taps - 1) * dilation; }  // rows it reads before its own
    double mul_adds(double rows) const { return rows * w.n * w.k; }
    double weight_bytes() const { return static_cast<double>(w.data.bytes()); }
};

// What the weights of a convolution become: `kept` in the file's own width, or `wide`, f32, where
// so many rows meet them that widening them on every use would cost more than their size.
enum class Width { kept, wide };

struct LayerIo {
    const float* x = nullptr;  // the earliest row the first output row reads
    int rows = 0;              // output rows; a transposed convolution's n covers `stride` of them
    float* y = nullptr;        // [rows, n], or null
    float* z = nullptr;        // [rows, n], or null
    const float* residual = nullptr;  // [rows, n], may equal y
};

// All rows and outputs, in parallel.
void run(Pool& pool, const Kernels& kernels, const Layer& layer, const LayerIo& io);
// Rows [r0, r1) and outputs [o0, o1) on this thread; o0 is a multiple of layer.w.unit().
void run_part(const Kernels& kernels, const Layer& layer, const LayerIo& io, int r0, int r1, int o0,
              int o1);

// How a layer is cut into pieces: blocks of rows by groups of panels.
struct Cut {
    int rows = 0, row_block = 0, row_pieces = 1;
    int n = 0, out_block = 0, out_pieces = 1;

    int pieces() const { return row_pieces * out_pieces; }
    int first_row(int piece) const { return piece % row_pieces * row_block; }
    int end_row(int piece) const {
        return (piece + 1) % row_pieces == 0 ? rows : first_row(piece) + row_block;
    }
    int first_out(int piece) const { return piece / row_pieces * out_block; }
    int end_out(int piece) const {
        const int end = first_out(piece) + out_block;
        return end < n ? end : n;
    }
};
// unit: outputs per panel; bytes: of one weight.
Cut cut_for(const Layer& layer, int unit, int rows, double bytes);

// What a kernel does with the sums of rows [r0, r1) and outputs [o0, o1).
GemmArgs epilogue(const Layer& layer, const LayerIo& io, int r0, int r1, int o0, int o1);

// Loaders; the weights keep their exact values. Names are those of the tensors without ".weight"
// and ".bias"; a shape that does not fit is an Error naming the tensor.
// The values where the file has them as f32, else null; valid as long as the file is open.
const float* mapped_floats(const Tensor& tensor);
std::vector<float> load_vector(const Gguf& file, const std::string& name, int n);
Layer load_linear(Pool& pool, const Gguf& file, const std::string& name, int n, int k, bool bias);
// Several matrices with the same input, one below the other.
Layer load_linears(Pool& pool, const Gguf& file, const std::vector<std::string>& names,
                   const std::vector<int>& n, int k);
Layer load_conv(Pool& pool, const Gguf& file, const std::string& name, int c_out, int c_in,
                int taps, bool bias, Width width = Width::kept);
// taps = stride or 2 * stride; the layer has n = stride * c_out.
Layer load_conv_transposed(Pool& pool, const Gguf& file, const std::string& name, int c_out,
                           int c_in, int taps, int stride, Width width = Width::kept);
// Adds snake's per-channel constants: v + sin(v*exp(alpha))^2 / (exp(beta)+1e-9), repeated over
// the n of a transposed convolution.
void add_snake(const Gguf& file, const std::string& name, int channels, Layer& layer);

}  // namespace qt
