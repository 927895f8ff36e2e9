// From the types of a GGUF file to floats and to the packed weights of kernels.h.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gguf.h"
#include "kernels.h"
#include "memory.h"
#include "threads.h"

namespace qt {

// n values (a whole number of blocks) -> floats, exactly as ggml defines the type.
void dequantize(TensorType type, const uint8_t* src, int64_t n, float* dst);
std::vector<float> to_floats(const Tensor& tensor);

// Of the types that are multiplied in integers; 0 for the others.
int bits_of(WeightType type);

// A matrix [n, k] packed for one of the gemm kernels.
struct Packed {
    WeightType type = WeightType::f32;
    int n = 0;
    int k = 0;
    Block data;

    // Multiplied in integers, after the activations are quantised.
    bool integers() const { return bits_of(type) != 0; }
    // Outputs per panel or group, the unit in which a matrix may be cut.
    int unit() const { return integers() ? kQ8Rows : kPanel; }
    size_t unit_bytes() const;
    // Where the unit of `output` (a multiple of unit()) begins.
    const uint8_t* at(int output) const {
        return data.as<uint8_t>() + static_cast<size_t>(output / unit()) * unit_bytes();
    }
};

// Row o of the packed matrix is row `row` of `tensor`; the same k for all.
struct RowRef {
    const Tensor* tensor = nullptr;
    int64_t row = 0;

    const uint8_t* data() const {
        return tensor->data + static_cast<size_t>(row) * tensor->row_bytes();
    }
};

enum class Bits { as_in_file = 0, four = 4, five = 5, six = 6, eight = 8 };

// As in the file: float tensors keep their type (their exact values); Q4_0 becomes q4, Q5_0 q5 and
// Q8_0 q8, exactly, and a mixture of them what holds them all; the K types become q8, requantised
// with a scale per 32 (error below 0.4 % of the block's largest value). Floats mixed with others
// are packed as f32.
//
// A number of bits: everything becomes q4, q5, q6 or q8, floats too, with the scale of least
// squared error per 32 (8 bits: the largest weight's); but Q4_0 and Q5_0 stay as they are.
Packed pack_rows(Pool& pool, const std::vector<RowRef>& rows, Bits bits = Bits::as_in_file);
// All rows of one [n, k] tensor.
Packed pack_linear(Pool& pool, const Tensor& tensor, Bits bits = Bits::as_in_file);

// Conv1d weight [out, in, taps] -> k = tap*in + c. Float types are kept, quantised ones become f32.
Packed pack_conv(Pool& pool, const Tensor& tensor);
// ConvTranspose1d weight [in, out, taps], taps = s or 2s -> n = s*out outputs (j*out + o) over
// x[t] (taps = s) or x[t-1], x[t] (taps = 2s): y[s*t+j] = W[j]^T x[t] + W[j+s]^T x[t-1].
Packed pack_conv_transposed(Pool& pool, const Tensor& tensor, int stride);
// fill(o, row) writes the k weights of output o.
Packed pack_filled(Pool& pool, WeightType type, int n, int k,
                   const std::function<void(int, float*)>& fill);

// The float gemm kernel of a packed matrix that is not q8.
void (*gemm_of(const Kernels& kernels, WeightType type))(const GemmArgs&);

}  // namespace qt
