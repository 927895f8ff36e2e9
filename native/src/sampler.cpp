#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

namespace qt {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

int largest(std::span<const float> logits) {
    int best = -1;
    for (size_t i = 0; i < logits.size(); ++i)
        if (logits[i] > (best < 0 ? kNever : logits[static_cast<size_t>(best)]))
            best = static_cast<int>(i);
    return best;
}

void keep_top_k(std::span<float> logits, int k, std::span<float> scratch) {
    if (k <= 0 || static_cast<size_t>(k) >= logits.size()) return;
    std::copy(logits.begin(), logits.end(), scratch.begin());
    std::nth_element(scratch.begin(), scratch.begin() + (k - 1), scratch.begin() + logits.size(),
                     std::greater<>());
    const float threshold = scratch[static_cast<size_t>(k - 1)];
    for (float& l : logits)
        if (l < threshold) l = kNever;
}

// Drops, from the smallest up, whatever leaves the dropped probability at or below 1 - p; the
// largest always stays. `scratch` holds indices as floats would: bit patterns of int32.
void keep_top_p(std::span<float> logits, float p, float max, std::span<float> scratch) {
    size_t n = 0;
    double total = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
        if (logits[i] == kNever) continue;
        const auto index = static_cast<int32_t>(i);
        std::memcpy(&scratch[n++], &index, sizeof index);
        total += portable_exp(double{logits[i]} - double{max});
    }
    const auto index_of = [](float slot) {
        int32_t index;
        std::memcpy(&index, &slot, sizeof index);
        return static_cast<size_t>(index);
    };
    const auto smaller = [&](float a, float b) {
        const size_t i = index_of(a), j = index_of(b);
        return logits[i] != logits[j] ? logits[i] < logits[j] : i < j;
    };
    std::sort(scratch.begin(), scratch.begin() + static_cast<std::ptrdiff_t>(n), smaller);
    const double budget = (1.0 - double{p}) * total;
    double dropped = 0;
    for (size_t r = 0; r + 1 < n; ++r) {
        float& l = logits[index_of(scratch[r])];
        dropped += portable_exp(double{l} - double{max});
        if (dropped > budget) break;
        l = kNever;
    }
}

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        const uint64_t a = uint64_t{0xD2511F53} * c[0];
        const uint64_t b = uint64_t{0xCD9E8D57} * c[2];
        c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(b),
             static_cast<uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(a)};
        key[0] += 0x9E3779B9;  // golden ratio
        key[1] += 0xBB67AE85;  // sqrt(3) - 1
    }
    return c;
}

double uniform_at(uint64_t seed, uint32_t frame, uint32_t codebook) {
    const auto words = philox4x32({frame, codebook, 0, 0},
                                  {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    const uint64_t bits = (uint64_t{words[0]} << 32 | words[1]) >> 11;
    return static_cast<double>(bits) * 0x1p-53;
}

double portable_exp(double x) {
    if (!(x > -700.0)) return 0.0;
    constexpr double kLog2e = 1.4426950408889634074;
    // ln 2 in two parts, the first with 32 trailing zero bits (fdlibm), so that n * hi is exact.
    constexpr double kLn2Hi = 6.93147180369123816490e-01, kLn2Lo = 1.90821492927058770002e-10;
    const double n = std::floor(x * kLog2e + 0.5);
    const double r = (x - n * kLn2Hi) - n * kLn2Lo;  // |r| <= 0.35
    double sum = 1.0;
    for (int k = 14; k > 0; --k) sum = 1.0 + r * sum / k;  // Taylor: the next term is below 1e-18
    const auto bits = static_cast<uint64_t>(static_cast<int64_t>(n) + 1023) << 52;
    double power;
    std::memcpy(&power, &bits, sizeof power);
    return sum * power;
}

void apply_repetition_penalty(std::span<float> logits, std::span<const uint64_t> seen,
                              float penalty) {
    for (size_t i = 0; i < logits.size() && i / 64 < seen.size(); ++i)
        if (seen[i / 64] >> (i % 64) & 1)
            logits[i] = logits[i] < 0 ? logits[i] * penalty : logits[i] / penalty;
}

void suppress(std::span<float> logits, int first, int last, int keep) {
    const int end = std::min(last, static_cast<int>(logits.size()));
    for (int i = std::max(first, 0); i < end; ++i)
        if (i != keep) logits[static_cast<size_t>(i)] = kNever;
}

int choose(std::span<float> logits, const SampleRules& rules, double random,
           std::span<float> scratch) {
    const int best = largest(logits);
    if (best < 0 || !rules.sample) return best;
    if (logits[static_cast<size_t>(best)] == -kNever) return best;  // infinite: nothing competes
    for (float& l : logits) {
        if (!(l > kNever)) l = kNever;
        if (rules.temperature != 1.0F) l /= rules.temperature;
    }
    keep_top_k(logits, rules.top_k, scratch);
    const float max = logits[static_cast<size_t>(best)];
    if (max == -kNever) return best;  // a tiny temperature overflowed: greedy
    if (rules.top_p < 1.0F) keep_top_p(logits, rules.top_p, max, scratch);

    double total = 0;
    for (const float l : logits) total += portable_exp(double{l} - double{max});
    const double target = random * total;
    double sum = 0;
    int last = best;
    for (size_t i = 0; i < logits.size(); ++i) {
        if (logits[i] == kNever) continue;
        const double p = portable_exp(double{logits[i]} - double{max});
        if (p == 0) continue;
        sum += p;
        last = static_cast<int>(i);
        if (sum > target) return last;
    }
    return last;  // random so close to 1 that rounding used the sum up
}

}  // namespace qt
