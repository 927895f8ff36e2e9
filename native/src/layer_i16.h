// A convolution on 12-bit weights and inputs (int16): 1.6 times as fast as floats, each output
// exact to about 78 dB. One scale per output of the weights and per row of the input, so that what
// a row gives does not depend on its neighbours.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gguf.h"
#include "kernels.h"
#include "layers.h"
#include "memory.h"
#include "threads.h"

namespace qt {

struct LayerI16 {
    Layer layer;  // everything but the weights
    Block w;
    std::vector<float> w_scale;

    bool loaded() const { return w.data() != nullptr; }
};

struct LayerI16Io {
    const int16_t* x = nullptr;      // the earliest row the first output row reads
    const float* x_scale = nullptr;  // of that row and those behind it
    LayerIo out;                     // its x is not read
};

// Whether the kernels take a convolution of c_in channels.
inline bool fits_i16(int c_in) {
    return c_in % 2 == 0;
}

LayerI16 load_conv_i16(Pool& pool, const Gguf& file, const std::string& name, int c_out, int c_in,
                       int taps, bool bias);

// x [rows, channels] -> q, scale [rows]
void quantize_rows(Pool& pool, const Kernels& kernels, const float* x, int rows, int channels,
                   int16_t* q, float* scale);

// As run_part() and run() of layers.h.
void run_part(const Kernels& kernels, const LayerI16& layer, const LayerI16Io& io, int r0, int r1,
              int o0, int o1);
void run(Pool& pool, const Kernels& kernels, const LayerI16& layer, const LayerI16Io& io);

}  // namespace qt
