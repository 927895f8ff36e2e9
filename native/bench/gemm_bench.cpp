// The integer products by themselves: multiply-adds per second of processor time for matrices of
// the talker's shapes and 1 to 128 rows, one thread.
//
//   gemm_bench [milliseconds per figure] [q8|q4]
//
// "cached" multiplies the same 512 KB of weights again and again; "rotating" goes through 64 MB, as
// speaking does. A piece is 64 KB of weights, as in linear.cpp.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "kernels.h"

namespace {

double cpu() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Problem {
    Problem(bool four, int k_, int rows_, size_t bytes) : k(k_), rows(rows_) {
        group_bytes = static_cast<size_t>(qt::q8_supers(k)) *
                      static_cast<size_t>(four ? qt::kQ4SuperBytes : qt::kQ8SuperBytes);
        groups = bytes / group_bytes;
        w.resize(groups * group_bytes);
        for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<uint8_t>(i * 2654435761U >> 13);
        // Scales of 2^-8 wherever a super-block begins.
        const size_t super = group_bytes / static_cast<size_t>(qt::q8_supers(k));
        for (size_t at = 0; at < w.size(); at += super)
            for (size_t i = 0; i < 32; ++i) {
                const uint16_t half = 0x1c00;
                std::memcpy(w.data() + at + 2 * i, &half, 2);
            }
        const auto n = static_cast<size_t>(rows);
        x.resize(n * static_cast<size_t>(qt::q8_row_bytes(k)));
        xs.resize(n * static_cast<size_t>(qt::q8_scales(k)));
        std::vector<float> row(static_cast<size_t>(k));
        for (int r = 0; r < rows; ++r) {
            for (size_t i = 0; i < row.size(); ++i)
                row[i] = static_cast<float>(
                    static_cast<int>((i * 37 + static_cast<size_t>(r) * 11) % 201) - 100);
            qt::kernels().quantize_q8(row.data(), k, x.data() + r * qt::q8_row_bytes(k),
                                      xs.data() + r * qt::q8_scales(k));
        }
    }

    int k, rows;
    size_t group_bytes = 0, groups = 0;
    std::vector<uint8_t> w;
    std::vector<int8_t> x;
    std::vector<float> xs;
};

// G multiply-adds per second.
double measure(const Problem& p, bool four, double seconds) {
    const size_t per_piece = std::max<size_t>(1, 65536 / p.group_bytes);
    std::vector<float> y(static_cast<size_t>(p.rows) * per_piece * qt::kQ8Rows);
    const auto gemm = four ? qt::kernels().gemm_q4 : qt::kernels().gemm_q8;
    double best = 0;
    size_t group = 0;
    for (const double end = cpu() + seconds; cpu() < end;) {
        const double start = cpu();
        double macs = 0;
        for (int i = 0; i < std::max(1, 128 / p.rows); ++i) {
            if (group + per_piece > p.groups) group = 0;
            const int n = static_cast<int>(per_piece) * qt::kQ8Rows;
            gemm({.x = p.x.data(),
                  .x_row = qt::q8_row_bytes(p.k),
                  .xs = p.xs.data(),
                  .xs_row = qt::q8_scales(p.k),
                  .w = p.w.data() + group * p.group_bytes,
                  .k = p.k,
                  .rows = p.rows,
                  .n = n,
                  .bias = nullptr,
                  .residual = nullptr,
                  .residual_row = 0,
                  .y = y.data(),
                  .y_row = n});
            group += per_piece;
            macs += static_cast<double>(p.rows) * n * p.k;
        }
        best = std::max(best, macs / (cpu() - start));
    }
    return best / 1e9;
}

}  // namespace

int main(int argc, char** argv) {
    const double seconds = (argc > 1 ? std::atof(argv[1]) : 100) / 1e3;
    const bool four = argc > 2 && std::strcmp(argv[2], "q4") == 0;
    std::printf("%s %s, G multiply-adds per second of one thread (best)\n", qt::kernels().name,
                four ? "q4" : "q8");
    std::printf("%6s %5s %10s %10s\n", "k", "rows", "cached", "rotating");
    for (const int k : {1024, 2048, 3072})
        for (const int rows : {1, 2, 3, 4, 6, 8, 12, 16, 32, 48, 64, 128}) {
            const Problem small(four, k, rows, size_t{512} << 10);
            const Problem large(four, k, rows, size_t{64} << 20);
            std::printf("%6d %5d %10.1f %10.1f\n", k, rows, measure(small, four, seconds),
                        measure(large, four, seconds));
        }
    return 0;
}
