#include "loop_guard.h"

#include <algorithm>
#include <limits>

namespace qt {

void LoopGuard::begin(const LoopRules& rules) {
    rules_ = rules;
    window_.clear();
    nudged_ = false;
    nudge_left_ = 0;
}

bool LoopGuard::periodic() const {
    const size_t n = window_.size();
    if (rules_.repeats == 0 || n < static_cast<size_t>(rules_.window)) return false;
    const int longest = std::min(rules_.max_period, rules_.window / rules_.repeats);
    for (int period = 1; period <= longest; ++period)
        if (std::equal(window_.begin() + period, window_.end(), window_.begin())) return true;
    return false;
}

void LoopGuard::nudge(std::span<float> logits) const {
    if (nudge_left_ == 0) return;
    const auto n = static_cast<size_t>(rules_.ngram);
    if (window_.size() < n) return;
    // The last n-1 values are the beginning of the n-gram that the next value would complete.
    const auto begun = window_.end() - static_cast<ptrdiff_t>(n - 1);
    for (size_t i = 0; i + n <= window_.size(); ++i) {
        const auto at = window_.begin() + static_cast<ptrdiff_t>(i);
        if (std::equal(begun, window_.end(), at))
            logits[static_cast<size_t>(at[static_cast<ptrdiff_t>(n - 1)])] =
                -std::numeric_limits<float>::infinity();
    }
}

LoopGuard::Verdict LoopGuard::take(int32_t value) {
    if (window_.size() == static_cast<size_t>(rules_.window)) window_.erase(window_.begin());
    window_.push_back(value);
    if (nudge_left_ > 0) --nudge_left_;
    if (!periodic()) return Verdict::go_on;
    if (nudged_ || rules_.ngram == 0) return Verdict::stop;
    nudged_ = true;
    nudge_left_ = rules_.window;
    return Verdict::go_on;
}

}  // namespace qt
