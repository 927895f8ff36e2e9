#include "log.h"

#include <cstdio>
#include <mutex>
#include <shared_mutex>

namespace qt {
namespace {

void to_stderr(int level, const char* message, void*) {
    if (level >= QT_LOG_WARN) std::fprintf(stderr, "qt: %s\n", message);
}

// Lines take it shared, so that set_log waits until the earlier callback has returned everywhere.
std::shared_mutex lock;
qt_log_cb current = to_stderr;
void* current_user_data = nullptr;

}  // namespace

void set_log(qt_log_cb callback, void* user_data) {
    const std::unique_lock<std::shared_mutex> hold(lock);
    current = callback;
    current_user_data = user_data;
}

void log_line(int level, const std::string& message) {
    const std::shared_lock<std::shared_mutex> hold(lock);
    if (current) current(level, message.c_str(), current_user_data);
}

}  // namespace qt
