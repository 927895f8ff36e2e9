// y = x @ W^T on all cores: the packed matrix is cut into pieces of about 64 KB of weights, which
// the threads claim one by one.
#pragma once

#include <functional>
#include <vector>

#include "kernels.h"
#include "quant.h"
#include "threads.h"

namespace qt {

// Rows of activations in the form the int8 kernels read. Grows, never shrinks.
class Quantised {
  public:
    // x [rows, k] with stride x_row
    void assign(Pool& pool, const float* x, ptrdiff_t x_row, int rows, int k);
    const int8_t* values() const { return values_.data(); }
    const float* scales() const { return scales_.data(); }

  private:
    std::vector<int8_t> values_;
    std::vector<float> scales_;
};

struct LinearArgs {
    const float* x = nullptr;  // [rows, k]
    ptrdiff_t x_row = 0;
    int rows = 0;
    const float* bias = nullptr;      // [n]
    const float* residual = nullptr;  // [rows, n], may be y
    ptrdiff_t residual_row = 0;
    float* y = nullptr;  // [rows, n]
    ptrdiff_t y_row = 0;
};

// `scratch` holds the int8 form of x when the matrix wants one.
void linear(Pool& pool, const Packed& w, const LinearArgs& args, Quantised& scratch);

// The same; after(first, last) runs in the piece that computed outputs first..last-1 of all rows.
// first is a multiple of 2 * w.unit(), so pairs of units stay together.
void linear_then(Pool& pool, const Packed& w, const LinearArgs& args, Quantised& scratch,
                 const std::function<void(int, int)>& after);

}  // namespace qt
