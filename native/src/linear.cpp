#include "linear.h"

#include <algorithm>

namespace qt {
namespace {

// Small enough to share out evenly and to hand over quickly when a core is taken away, large
// enough that claiming (about 0.1 us) does not show: 64 KB are about 4 us of memory time.
constexpr size_t kPieceBytes = 64 * 1024;
// The float kernels take four panels at once for a single row (kernels_avx2.cpp).
constexpr int kUnitsTogether = 4;

void (*gemm_of_integers(WeightType type))(const GemmQ8Args&) {
    if (type == WeightType::q4) return kernels().gemm_q4;
    if (type == WeightType::q5) return kernels().gemm_q5;
    if (type == WeightType::q6) return kernels().gemm_q6;
    return kernels().gemm_q8;
}

void compute(const Packed& w, const LinearArgs& args, const Quantised& q, int first, int last) {
    const float* bias = args.bias ? args.bias + first : nullptr;
    const float* residual = args.residual ? args.residual + first : nullptr;
    if (w.integers()) {
        gemm_of_integers(w.type)({.x = q.values(),
                                  .x_row = q8_row_bytes(w.k),
                                  .xs = q.scales(),
                                  .xs_row = q8_scales(w.k),
                                  .w = w.at(first),
                                  .k = w.k,
                                  .rows = args.rows,
                                  .n = last - first,
                                  .bias = bias,
                                  .residual = residual,
                                  .residual_row = args.residual_row,
                                  .y = args.y + first,
                                  .y_row = args.y_row});
        return;
    }
    GemmArgs g;
    g.x = args.x;
    g.x_row = args.x_row;
    g.c_in = w.k;
    g.w = w.at(first);
    g.rows = args.rows;
    g.n = last - first;
    g.bias = bias;
    g.residual = residual;
    g.residual_row = args.residual_row;
    g.y = args.y + first;
    g.y_row = args.y_row;
    gemm_of(kernels(), w.type)(g);
}

template <typename F>
void in_pieces(Pool& pool, const Packed& w, const LinearArgs& args, Quantised& scratch,
               const F& after) {
    if (w.integers()) scratch.assign(pool, args.x, args.x_row, args.rows, w.k);
    int units = static_cast<int>(kPieceBytes / w.unit_bytes());
    units = std::max(kUnitsTogether, units / kUnitsTogether * kUnitsTogether);
    const int step = units * w.unit();
    pool.parallel_for((w.n + step - 1) / step, [&](int piece, int) {
        const int first = piece * step;
        const int last = std::min(w.n, first + step);
        compute(w, args, scratch, first, last);
        after(first, last);
    });
}

}  // namespace

void Quantised::assign(Pool& pool, const float* x, ptrdiff_t x_row, int rows, int k) {
    const auto row_bytes = static_cast<size_t>(q8_row_bytes(k));
    const auto row_scales = static_cast<size_t>(q8_scales(k));
    const auto n = static_cast<size_t>(rows);
    if (values_.size() < n * row_bytes) values_.resize(n * row_bytes);
    if (scales_.size() < n * row_scales) scales_.resize(n * row_scales);
    by_rows(pool, rows, [&](int row) {
        const auto r = static_cast<size_t>(row);
        kernels().quantize_q8(x + row * x_row, k, values_.data() + r * row_bytes,
                              scales_.data() + r * row_scales);
    });
}

void linear(Pool& pool, const Packed& w, const LinearArgs& args, Quantised& scratch) {
    in_pieces(pool, w, args, scratch, [](int, int) {});
}

void linear_then(Pool& pool, const Packed& w, const LinearArgs& args, Quantised& scratch,
                 const std::function<void(int, int)>& after) {
    in_pieces(pool, w, args, scratch, after);
}

}  // namespace qt
