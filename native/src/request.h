// One utterance as the engine takes it: checked, planned, and independent of the caller's memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "loop_guard.h"
#include "prompt.h"
#include "qt.h"
#include "sampler.h"

namespace qt {

using Clock = std::chrono::steady_clock;

inline float milliseconds(Clock::duration d) {
    return std::chrono::duration<float, std::milli>(d).count();
}

struct Request {
    PromptPlan plan;
    std::vector<float> voice;  // [hidden] or empty
    int max_frames = 0;
    SampleRules rules;
    SampleRules predictor_rules;
    float repetition_penalty = 1;
    uint64_t seed = 0;
    std::vector<int32_t> onset_bans;  // values of code 0
    int onset_ban_frames = 0;
    LoopRules loop;
    int first_chunk_frames = 1;
    int chunk_frames = 4;  // the most in a later chunk

    qt_cancel_cb cancel = nullptr;
    void* cancel_user_data = nullptr;
    qt_audio_chunk_cb on_chunk = nullptr;
    void* on_chunk_user_data = nullptr;
    qt_flow_cb flow = nullptr;
    void* flow_user_data = nullptr;

    // Filled while it runs.
    Clock::time_point entered;
    std::vector<int32_t> codes;  // [n_frames, 16]
    std::vector<float> samples;  // without on_chunk
    qt_result result = {};

    bool wants_cancel() const { return cancel && cancel(cancel_user_data); }
};

}  // namespace qt
