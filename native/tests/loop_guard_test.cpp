// The loop guard as qt.h describes it.
#include "loop_guard.h"

#include "check.h"

using qt::LoopGuard;
using qt::LoopRules;

namespace {

constexpr LoopRules kSmall = {.ngram = 2, .max_period = 4, .repeats = 2, .window = 8};

// Frames until the guard says stop when `period` values repeat and nudging is obeyed or not;
// -1 when it never does within 100.
int frames_until_stop(const LoopRules& rules, int period) {
    LoopGuard guard;
    guard.begin(rules);
    for (int i = 0; i < 100; ++i)
        if (guard.take(i % period) == LoopGuard::Verdict::stop) return i + 1;
    return -1;
}

}  // namespace

TEST(sees_a_loop_only_when_the_window_is_periodic) {
    LoopGuard guard;
    guard.begin({.ngram = 0, .max_period = 4, .repeats = 2, .window = 8});
    const int values[] = {9, 1, 2, 1, 2, 1, 2, 1, 2};
    for (int i = 0; i < 8; ++i) CHECK(guard.take(values[i]) == LoopGuard::Verdict::go_on);
    CHECK(guard.take(values[8]) == LoopGuard::Verdict::stop);
}

TEST(stops_the_second_time) {
    CHECK(frames_until_stop({.ngram = 0, .max_period = 4, .repeats = 2, .window = 8}, 2) == 8);
    // With nudging (which this caller ignores) the next look is one frame later.
    CHECK(frames_until_stop(kSmall, 2) == 9);
}

TEST(period_limits) {
    CHECK(frames_until_stop({.ngram = 0, .max_period = 4, .repeats = 2, .window = 8}, 4) == 8);
    CHECK(frames_until_stop({.ngram = 0, .max_period = 3, .repeats = 2, .window = 8}, 4) == -1);
    // period * repeats must fit the window: 4 * 3 > 8
    CHECK(frames_until_stop({.ngram = 0, .max_period = 4, .repeats = 3, .window = 8}, 4) == -1);
    CHECK(frames_until_stop({.ngram = 0, .max_period = 4, .repeats = 0, .window = 8}, 1) == -1);
}

TEST(nudges_only_after_a_loop_and_only_for_a_window) {
    LoopGuard guard;
    guard.begin(kSmall);
    std::vector<float> logits(10, 1.0F);
    for (int i = 0; i < 7; ++i) {
        guard.take(i % 2);
        guard.nudge(logits);
    }
    CHECK(logits == std::vector<float>(10, 1.0F));
    guard.take(1);  // 0 1 0 1 0 1 0 1: a loop
    guard.nudge(logits);
    for (int i = 0; i < 10; ++i) CHECK(std::isinf(logits[static_cast<size_t>(i)]) == (i == 0));
    // A new value has no known continuation; the nudge runs out after a window of frames.
    for (int i = 2; i < 10; ++i) guard.take(i);
    std::fill(logits.begin(), logits.end(), 1.0F);
    guard.take(9);
    guard.nudge(logits);
    CHECK(logits == std::vector<float>(10, 1.0F));
}
