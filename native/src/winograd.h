// A convolution of 7 taps with 10 products for 4 outputs where 28 would be the direct way: minimal
// filtering, F(4, 7), over time (Winograd, "Arithmetic Complexity of Computations", 1980; Lavin and
// Gray, "Fast Algorithms for Convolutional Neural Networks", 2015, over both axes of pictures).
//
// 10 inputs, `dilation` rows apart, become 10 others (winograd_in); in that form the convolution is
// a product with one matrix [n, c_in] for each; 4 outputs come back out of 10 (winograd_out). What
// a row gives depends on its place within its frame alone, so that frames may come one at a time or
// many at once.
#pragma once

#include <string>
#include <vector>

#include "gguf.h"
#include "kernels.h"
#include "layers.h"
#include "quant.h"
#include "threads.h"

namespace qt {

struct WinogradConv {
    Layer layer;  // everything but the weights
    Packed planes[kWinogradIn];

    bool loaded() const { return planes[0].n != 0; }
    double weight_bytes() const {
        return kWinogradIn * static_cast<double>(planes[0].data.bytes());
    }
    double mul_adds(int rows) const;
};

// Whether it can be used where a frame has so many rows: no tile reaches before its frame.
inline bool fits_winograd(int rows_per_frame, int dilation) {
    return rows_per_frame >= kWinogradOut * dilation;
}

// Tiles that make rows [r0, r1) of a frame, each row once. The last tile of each row of tiles is
// moved back until it ends there, and passes over what the one before it made.
std::vector<WinogradTile> winograd_tiles(int r0, int r1, int dilation);

// From weights [c_out, c_in, 7], without a bias.
WinogradConv pack_winograd(Pool& pool, const float* w, int c_out, int c_in, int dilation);
WinogradConv load_conv_winograd(Pool& pool, const Gguf& file, const std::string& name, int c_out,
                                int c_in, int dilation, bool bias);

// Rows [r0, r1) of one frame and outputs [o0, o1) on this thread; o0 is a multiple of kPanel.
void run_part(const Kernels& kernels, const WinogradConv& conv, const LayerIo& io, int r0, int r1,
              int o0, int o1);
// All rows (whole frames of frame_rows) and outputs, in parallel.
void run(Pool& pool, const Kernels& kernels, const WinogradConv& conv, const LayerIo& io,
         int frame_rows);

}  // namespace qt
