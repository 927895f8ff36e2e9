#include "quant.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "half.h"
#include "pack_int.h"
#include "status.h"

namespace qt {
namespace {

constexpr int kPackPieceUnits = 8;

bool is_float(TensorType type) {
    return type == TensorType::f32 || type == TensorType::f16 || type == TensorType::bf16;
}

WeightType float_weight(TensorType type) {
    if (type == TensorType::f16) return WeightType::f16;
    if (type == TensorType::bf16) return WeightType::bf16;
    return WeightType::f32;
}

// What the rows become when they are multiplied in integers. Rows that somebody has made small stay
// as they are: requantised, they would be worse than from what they were made.
WeightType integer_weight(const std::vector<RowRef>& rows, Bits wanted) {
    const int most = wanted == Bits::as_in_file ? 8 : static_cast<int>(wanted);
    int bits = 0;
    for (const RowRef& r : rows) {
        const int exact = exact_bits(r.tensor->type);
        bits = std::max(bits, exact == 4 || exact == 5 ? exact : most);
    }
    if (bits == 4) return WeightType::q4;
    if (bits == 5) return WeightType::q5;
    return bits == 6 ? WeightType::q6 : WeightType::q8;
}

// One row of k weights into column o of a panel [k][16].
void store_row(WeightType type, const float* row, int k, int o, uint8_t* panel) {
    if (type == WeightType::f32) {
        auto* w = reinterpret_cast<float*>(panel);
        for (int i = 0; i < k; ++i) w[static_cast<ptrdiff_t>(i) * kPanel + o] = row[i];
        return;
    }
    auto* w = reinterpret_cast<uint16_t*>(panel);
    for (int i = 0; i < k; ++i)
        w[static_cast<ptrdiff_t>(i) * kPanel + o] =
            type == WeightType::f16 ? float_to_half(row[i])
                                    : static_cast<uint16_t>(float_to_bits(row[i]) >> 16);
}

Packed empty(WeightType type, int n, int k) {
    Packed p;
    p.type = type;
    p.n = n;
    p.k = k;
    const auto units = static_cast<size_t>((n + p.unit() - 1) / p.unit());
    p.data = Block(units * p.unit_bytes());
    return p;
}

// one(o, unit, index within unit) for every output, in parallel over units.
template <typename F>
void for_each_output(Pool& pool, const Packed& p, const F& one) {
    const int units = (p.n + p.unit() - 1) / p.unit();
    const int pieces = (units + kPackPieceUnits - 1) / kPackPieceUnits;
    pool.parallel_for(pieces, [&](int piece, int) {
        const int end = std::min(p.n, (piece + 1) * kPackPieceUnits * p.unit());
        for (int o = piece * kPackPieceUnits * p.unit(); o < end; ++o) {
            uint8_t* unit =
                p.data.as<uint8_t>() + static_cast<size_t>(o / p.unit()) * p.unit_bytes();
            one(o, unit, o % p.unit());
        }
    });
}

}  // namespace

int bits_of(WeightType type) {
    if (type == WeightType::q8) return 8;
    if (type == WeightType::q6) return 6;
    if (type == WeightType::q5) return 5;
    return type == WeightType::q4 ? 4 : 0;
}

size_t Packed::unit_bytes() const {
    if (type == WeightType::q8) return static_cast<size_t>(q8_supers(k)) * kQ8SuperBytes;
    if (type == WeightType::q6) return static_cast<size_t>(q8_supers(k)) * kQ6SuperBytes;
    if (type == WeightType::q5) return static_cast<size_t>(q8_supers(k)) * kQ5SuperBytes;
    if (type == WeightType::q4) return static_cast<size_t>(q8_supers(k)) * kQ4SuperBytes;
    if (type == WeightType::w8)
        return static_cast<size_t>((k + kW8Block - 1) / kW8Block) * kW8BlockBytes;
    return static_cast<size_t>(k) * kPanel * (type == WeightType::f32 ? 4 : 2);
}

Packed pack_filled(Pool& pool, WeightType type, int n, int k,
                   const std::function<void(int, float*)>& fill) {
    Packed p = empty(type, n, k);
    for_each_output(pool, p, [&](int o, uint8_t* unit, int index) {
        thread_local std::vector<float> row;
        row.resize(static_cast<size_t>(k));
        fill(o, row.data());
        store_row(type, row.data(), k, index, unit);
    });
    return p;
}

Packed pack_rows(Pool& pool, const std::vector<RowRef>& rows, Bits bits) {
    const TensorType first = rows.front().tensor->type;
    bool same = true;
    bool quantised = true;
    for (const RowRef& r : rows) {
        same = same && r.tensor->type == first;
        quantised = quantised && !is_float(r.tensor->type);
    }
    const int n = static_cast<int>(rows.size());
    const int k = static_cast<int>(rows.front().tensor->row_values());
    if (bits == Bits::as_in_file && !quantised) {
        const WeightType type = same ? float_weight(first) : WeightType::f32;
        return pack_filled(pool, type, n, k, [&](int o, float* row) {
            const RowRef& ref = rows[static_cast<size_t>(o)];
            dequantize(ref.tensor->type, ref.data(), k, row);
        });
    }
    const WeightType type = integer_weight(rows, bits);
    Packed p = empty(type, n, k);
    for_each_output(pool, p, [&](int o, uint8_t* unit, int index) {
        thread_local std::vector<float> floats;
        const RowRef& ref = rows[static_cast<size_t>(o)];
        store_integers(ref, k, bits_of(type), index, unit, floats);
    });
    return p;
}

Packed pack_linear(Pool& pool, const Tensor& tensor, Bits bits) {
    std::vector<RowRef> rows;
    const int64_t n = tensor.values() / tensor.row_values();
    for (int64_t i = 0; i < n; ++i) rows.push_back({&tensor, i});
    return pack_rows(pool, rows, bits);
}

Packed pack_conv(Pool& pool, const Tensor& tensor) {
    const int out = static_cast<int>(tensor.shape[0]);
    const int in = static_cast<int>(tensor.shape[1]);
    const int taps = static_cast<int>(tensor.shape[2]);
    const std::vector<float> w = to_floats(tensor);
    return pack_filled(pool, float_weight(tensor.type), out, in * taps, [&](int o, float* row) {
        for (int j = 0; j < taps; ++j)
            for (int c = 0; c < in; ++c)
                row[j * in + c] = w[(static_cast<size_t>(o) * in + c) * taps + j];
    });
}

Packed pack_conv_transposed(Pool& pool, const Tensor& tensor, int stride) {
    const int in = static_cast<int>(tensor.shape[0]);
    const int out = static_cast<int>(tensor.shape[1]);
    const int taps = static_cast<int>(tensor.shape[2]);
    if (taps != stride && taps != 2 * stride)
        throw Error(
            Status::invalid_params,
            strf("tensor '%s': a transposed convolution of stride %d needs %d or %d taps, not %d",
                 tensor.name.c_str(), stride, stride, 2 * stride, taps));
    const int columns = taps / stride;  // x[t-1] and x[t], or x[t] alone
    const std::vector<float> w = to_floats(tensor);
    return pack_filled(
        pool, float_weight(tensor.type), stride * out, in * columns, [&](int n, float* row) {
            const int j = n / out;
            const int o = n % out;
            for (int column = 0; column < columns; ++column) {
                const int tap = column == columns - 1 ? j : j + stride;
                for (int c = 0; c < in; ++c)
                    row[column * in + c] = w[(static_cast<size_t>(c) * out + o) * taps + tap];
            }
        });
}

void (*gemm_of(const Kernels& kernels, WeightType type))(const GemmArgs&) {
    if (type == WeightType::f16) return kernels.gemm_f16;
    if (type == WeightType::bf16) return kernels.gemm_bf16;
    if (type == WeightType::w8) return kernels.gemm_w8;
    return kernels.gemm_f32;
}

}  // namespace qt
