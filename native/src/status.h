// What can go wrong inside the engine: one exception with the status that crosses the C ABI.
#pragma once

#include <stdexcept>
#include <string>

namespace qt {

// The values are those of qt_status in qt.h.
enum class Status : int {
    ok = 0,
    invalid_params = -1,
    mode_invalid = -2,
    generate_failed = -3,
    out_of_memory = -4,
    cancelled = -5,
};

// The message says what was wrong, what was expected, and the way out. It reaches the caller.
class Error : public std::runtime_error {
  public:
    Error(Status status, const std::string& message)
        : std::runtime_error(message), status_(status) {}
    Status status() const { return status_; }

  private:
    Status status_;
};

// printf into a std::string.
std::string strf(const char* format, ...) __attribute__((format(printf, 1, 2)));

// A caller's argument is wrong; the message begins with the field's name.
[[noreturn]] void fail_params(const std::string& message);
// A file cannot be used; the message begins with the file's name.
[[noreturn]] void fail_file(const std::string& path, const std::string& message);

}  // namespace qt
