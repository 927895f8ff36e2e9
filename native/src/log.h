// One log for all contexts; see qt_log_set.
#pragma once

#include <string>

#include "qt.h"

namespace qt {

void set_log(qt_log_cb callback, void* user_data);
void log_line(int level, const std::string& message);

}  // namespace qt
