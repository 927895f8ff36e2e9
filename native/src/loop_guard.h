// Notices a talker that repeats itself for ever; see qt.h for what it promises.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace qt {

struct LoopRules {
    int ngram = 4;  // 0: never nudge
    int max_period = 16;
    int repeats = 4;  // 0: guard off
    int window = 64;
};

class LoopGuard {
  public:
    enum class Verdict { go_on, stop };

    void begin(const LoopRules& rules);
    // While nudging: sets the logits of values that would complete a known n-gram to -inf.
    void nudge(std::span<float> logits) const;
    // The value chosen for this frame.
    Verdict take(int32_t value);

  private:
    bool periodic() const;

    LoopRules rules_;
    std::vector<int32_t> window_;  // the last rules_.window values, oldest first
    bool nudged_ = false;
    int nudge_left_ = 0;  // frames
};

}  // namespace qt
