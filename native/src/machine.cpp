#include "machine.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "kernels.h"
#include "memory.h"
#include "threads.h"

namespace qt {
namespace {

constexpr size_t kBytes = size_t{256} << 20;  // several times any cache
constexpr int kTries = 5;
constexpr int kPieces = 64;
// Cache lines ahead: without it the hardware's prefetcher stops at every page.
constexpr ptrdiff_t kAhead = 2048;

double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

template <typename F>
double best_seconds(const F& f) {
    double best = 1e9;
    for (int i = 0; i < kTries; ++i) {
        const double start = seconds();
        f();
        best = std::min(best, seconds() - start);
    }
    return best;
}

uint64_t read_all(const uint64_t* from, size_t words) {
    uint64_t sum[8] = {};
    for (size_t i = 0; i + 8 <= words; i += 8) {
        __builtin_prefetch(reinterpret_cast<const char*>(from + i) + kAhead);
        for (size_t j = 0; j < 8; ++j) sum[j] ^= from[i + j];
    }
    for (const uint64_t s : sum) sum[0] ^= s;
    return sum[0];
}

double read_speed(Pool& pool) {
    const Block block(kBytes + kAhead + 64);
    auto* words = block.as<uint64_t>();
    constexpr size_t kWords = kBytes / sizeof(uint64_t);
    pool.parallel_for(kPieces, [&](int piece, int) {
        std::fill_n(words + kWords / kPieces * static_cast<size_t>(piece), kWords / kPieces, 1);
    });
    std::vector<uint64_t> sums(kPieces);
    return static_cast<double>(kBytes) / best_seconds([&] {
               pool.parallel_for(kPieces, [&](int piece, int) {
                   const auto p = static_cast<size_t>(piece);
                   sums[p] = read_all(words + kWords / kPieces * p, kWords / kPieces);
               });
           });
}

double mul_add_speed(Pool& pool) {
    // A convolution 96 -> 96 of 7 taps over 96 rows, as in the codec.
    constexpr int kChannels = 96, kRows = 96, kTaps = 7, kTimes = 12;
    const auto workers = static_cast<size_t>(pool.size());
    const std::vector<float> x((kRows + kTaps) * kChannels, 0.5F);
    const std::vector<float> w(kTaps * kChannels * kChannels, 0.01F);
    std::vector<std::vector<float>> y(workers, std::vector<float>(kRows * kChannels));
    const double macs = double{kTimes} * kRows * kTaps * kChannels * kChannels * pool.size() * 4;
    return macs / best_seconds([&] {
               pool.parallel_for(4 * pool.size(), [&](int, int worker) {
                   GemmArgs g;
                   g.x = x.data();
                   g.x_row = kChannels;
                   g.c_in = kChannels * kTaps;
                   g.w = w.data();
                   g.rows = kRows;
                   g.n = kChannels;
                   g.y = y[static_cast<size_t>(worker)].data();
                   g.y_row = kChannels;
                   for (int i = 0; i < kTimes; ++i) kernels().gemm_f32(g);
               });
           });
}

}  // namespace

MachineLimits measure_machine(int n_threads) {
    Pool pool(n_threads > 0 ? n_threads : usable_cores());
    return {pool.size(), read_speed(pool), mul_add_speed(pool)};
}

}  // namespace qt
