// From logits to a token: Hugging Face's rules, in Hugging Face's order, on a counter-based random
// number generator.
//
// Every function is pure: no state but its arguments, no allocation. The same logits, rules and
// random number give the same token on every machine: fp32 and fp64 operations in a fixed order,
// an own exp, no libm and no contraction into fused multiply-adds (the build sets
// -ffp-contract=off).
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace qt {

// Philox 4x32-10 (Salmon et al., SC 2011): four random words from a counter and a key.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// The random number in [0, 1), 53 bits, for codebook `codebook` of frame `frame` of a request.
// It depends on nothing drawn before, so lanes of a batch cannot disturb each other.
double uniform_at(uint64_t seed, uint32_t frame, uint32_t codebook);

struct SampleRules {
    bool sample = true;  // false: the largest logit
    float temperature = 0.9F;
    int top_k = 50;      // 0: off
    float top_p = 1.0F;  // 1: off
};

// Logit surgery before the choice, in this order.

// l = l < 0 ? l*penalty : l/penalty for every id with a set bit in `seen` (bit i%64 of word i/64).
void apply_repetition_penalty(std::span<float> logits, std::span<const uint64_t> seen,
                              float penalty);

// Logits of [first, last) to -inf, except that of `keep` (-1: none).
void suppress(std::span<float> logits, int first, int last, int keep = -1);

// The index chosen, or -1 when no logit is above -inf (NaN counts as -inf). Writes into `logits`
// (temperature) and `scratch`, which is as long. `random` in [0, 1).
// Ties: the greedy choice takes the first of the largest; top_k keeps every logit that equals the
// k-th largest; top_p drops the smallest first and, among equals, the first in the vocabulary.
int choose(std::span<float> logits, const SampleRules& rules, double random,
           std::span<float> scratch);

// exp(x) for x <= 0 to within 1e-15 relative, 0 below -700: the same bits everywhere.
double portable_exp(double x);

}  // namespace qt
