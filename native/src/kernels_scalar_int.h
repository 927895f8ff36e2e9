// The scalar kernels on small integers (kernels_scalar_int.cpp), for the table.
#pragma once

#include "kernels.h"

namespace qt::scalar {

void gemm_q8(const GemmQ8Args& g);
void gemm_q6(const GemmQ8Args& g);
void gemm_q5(const GemmQ8Args& g);
void gemm_q4(const GemmQ8Args& g);
void quantize_q8(const float* x, int k, int8_t* q, float* scales);

}  // namespace qt::scalar
