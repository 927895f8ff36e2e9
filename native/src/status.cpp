#include "status.h"

#include <cstdarg>
#include <cstdio>

namespace qt {

std::string strf(const char* format, ...) {
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    const int length = std::vsnprintf(nullptr, 0, format, args);
    va_end(args);
    std::string out(length > 0 ? static_cast<size_t>(length) : 0, '\0');
    if (length > 0) std::vsnprintf(out.data(), out.size() + 1, format, again);
    va_end(again);
    return out;
}

void fail_params(const std::string& message) {
    throw Error(Status::invalid_params, message);
}

void fail_file(const std::string& path, const std::string& message) {
    throw Error(Status::invalid_params, path + ": " + message);
}

}  // namespace qt
