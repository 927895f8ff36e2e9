// What the test hooks share: C linkage, and exceptions turned into a message.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>

#if defined(_WIN32)
#define HOOK extern "C" __declspec(dllexport)
#else
#define HOOK extern "C" __attribute__((visibility("default")))
#endif

namespace hooks {

inline std::string& last_error() {
    thread_local std::string message;
    return message;
}

// f(), or `failed` with the message kept for hook_error() when it throws.
template <typename T, typename F>
T guard(T failed, F f) {
    try {
        return f();
    } catch (const std::exception& e) {
        last_error() = e.what();
        return failed;
    }
}

}  // namespace hooks
