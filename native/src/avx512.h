// What the AVX-512 kernels share, and their names for the table. The machine needs F, BW, VL, DQ
// and VNNI: Ice Lake, Zen 4 and later.
//
// Never run on such a machine yet. The unit tests compile the same source against an emulation of
// the intrinsics (QT_EMULATE_AVX512, tests/avx512_emulated.h), which goes into a namespace of its
// own, so that both can be in one program.
#pragma once

#ifdef QT_EMULATE_AVX512
#include "avx512_emulated.h"
#define QT_AVX512 avx512_emulated
#else
#include <immintrin.h>
#define QT_AVX512 avx512
#endif

#include "avx2_math.h"
#include "kernels.h"

namespace qt::QT_AVX512 {

void gemm_f32(const GemmArgs& g);
void gemm_f16(const GemmArgs& g);
void gemm_bf16(const GemmArgs& g);
void gemm_w8(const GemmArgs& g);

// The AVX2 table with the products of this instruction set in their places.
const Kernels& table();

// Twelve rows by one panel keep 12 sums in flight, more than the 8 that hide the latency of two
// multiply-adds a cycle. The last two tiles share what is left, so that neither is too small.
constexpr int kRowsOfTile = 12;
static inline int next_rows(int left) {
    if (left <= kRowsOfTile) return left;
    return left < 2 * kRowsOfTile ? (left + 1) / 2 : kRowsOfTile;
}

// f.template operator()<R>() for R = rows, 1..12: the number of sums has to be a constant.
template <typename F>
static inline void with_rows(int rows, const F& f) {
    switch (rows) {
        case 1:
            return f.template operator()<1>();
        case 2:
            return f.template operator()<2>();
        case 3:
            return f.template operator()<3>();
        case 4:
            return f.template operator()<4>();
        case 5:
            return f.template operator()<5>();
        case 6:
            return f.template operator()<6>();
        case 7:
            return f.template operator()<7>();
        case 8:
            return f.template operator()<8>();
        case 9:
            return f.template operator()<9>();
        case 10:
            return f.template operator()<10>();
        case 11:
            return f.template operator()<11>();
        default:
            return f.template operator()<12>();
    }
}

}  // namespace qt::QT_AVX512
