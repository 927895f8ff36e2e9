// The AVX2 kernels of the other kernels_avx2_*.cpp, for the table.
#pragma once

#include "kernels.h"

namespace qt::avx2 {

void gemm_f32(const GemmArgs& g);
void gemm_f16(const GemmArgs& g);
void gemm_bf16(const GemmArgs& g);
void gemm_w8(const GemmArgs& g);
void winograd_in(const WinogradInArgs& a);
void winograd_out(const WinogradOutArgs& a);
void gemm_q6(const GemmQ8Args& g);
void gemm_q5(const GemmQ8Args& g);

void quantize_q8(const float* x, int k, int8_t* q, float* scales);
void attention_f32(const AttnArgs& a);
void attention_f16(const AttnArgs& a);
void depthwise(const DepthwiseArgs& d);
void rms_norm(const float* x, const float* w, float eps, int n, float* y);
void layer_norm(const float* x, const float* w, const float* b, float eps, int n, float* y);
void activate(Act act, const float* x, const float* a, const float* b, int n, float* y);
void swiglu(const float* gate, const float* up, int n, float* y);
void rope(float* x, const float* cos, const float* sin, int half);
void softmax(float* x, int n);
void add(const float* x, int n, float* y);
float dot(const float* a, const float* b, int n);
void float_to_half_row(const float* x, int n, uint16_t* y);

}  // namespace qt::avx2
