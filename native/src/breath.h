// What long work calls between its steps, each of about a frame's time, so that others get their
// turn; it may throw, to end the work.
#pragma once

#include <functional>

namespace qt {

using Breath = std::function<void()>;

inline void no_breath() {}

}  // namespace qt
