// One row of weights into the integer formats of kernels.h.
#pragma once

#include <cstdint>
#include <vector>

#include "quant.h"

namespace qt {

// 32 weights: value = scale * q.
struct Weights32 {
    int8_t q[32];
    uint16_t scale;  // half
};

// Bits that hold the values of a type exactly, with its own scale per 32; 0 where none do.
int exact_bits(TensorType type);
// Block b of a row of such a type.
Weights32 file_block(TensorType type, const uint8_t* row, int b);

// Row `ref` of k weights as output o (0..7) of one zeroed group of q8, q6, q5 or q4 weights; exact
// where the file has no more bits, else requantised. `floats` is scratch.
void store_integers(const RowRef& ref, int k, int bits, int o, uint8_t* group,
                    std::vector<float>& floats);

}  // namespace qt
