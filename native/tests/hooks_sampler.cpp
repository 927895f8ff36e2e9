// Test hooks: the sampler over a C interface for Python.
#include <vector>

#include "../src/sampler.h"
#include "hooks.h"

HOOK void hook_philox(const uint32_t* counter, const uint32_t* key, uint32_t* out) {
    const auto words =
        qt::philox4x32({counter[0], counter[1], counter[2], counter[3]}, {key[0], key[1]});
    std::copy(words.begin(), words.end(), out);
}

HOOK double hook_uniform(uint64_t seed, uint32_t frame, uint32_t codebook) {
    return qt::uniform_at(seed, frame, codebook);
}

HOOK double hook_exp(double x) {
    return qt::portable_exp(x);
}

HOOK void hook_penalty(float* logits, int32_t n, const uint64_t* seen, int32_t words,
                       float penalty) {
    qt::apply_repetition_penalty({logits, static_cast<size_t>(n)},
                                 {seen, static_cast<size_t>(words)}, penalty);
}

HOOK void hook_suppress(float* logits, int32_t n, int32_t first, int32_t last, int32_t keep) {
    qt::suppress({logits, static_cast<size_t>(n)}, first, last, keep);
}

// Leaves in `logits` what survived top_k and top_p (the rest is -inf).
HOOK int32_t hook_choose(float* logits, int32_t n, int32_t sample, float temperature, int32_t top_k,
                         float top_p, double random) {
    std::vector<float> scratch(static_cast<size_t>(n));
    return qt::choose({logits, static_cast<size_t>(n)}, {sample != 0, temperature, top_k, top_p},
                      random, scratch);
}

// `draws` choices from the same logits, with the numbers of frames 0, 1, 2 ...
HOOK void hook_choose_many(const float* logits, int32_t n, float temperature, int32_t top_k,
                           float top_p, uint64_t seed, int32_t draws, int32_t* out) {
    std::vector<float> work(static_cast<size_t>(n)), scratch(work.size());
    for (int32_t i = 0; i < draws; ++i) {
        std::copy(logits, logits + n, work.begin());
        out[i] = qt::choose(work, {true, temperature, top_k, top_p},
                            qt::uniform_at(seed, static_cast<uint32_t>(i), 0), scratch);
    }
}
