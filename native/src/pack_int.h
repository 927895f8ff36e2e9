// One row of weights into the integer formats of kernels.h.
#pragma once

#include <cstdint>
#include <vector>

#include "quant.h"

namespace qt {

// Row `ref` of k weights as output o (0..7) of one group; `floats` is scratch.
void store_q8_row(const RowRef& ref, int k, int o, uint8_t* group, std::vector<float>& floats);
void store_q4_row(const RowRef& ref, int k, int o, uint8_t* group, std::vector<float>& floats);

}  // namespace qt
