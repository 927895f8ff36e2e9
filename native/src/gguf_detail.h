// What the two halves of the GGUF reader (gguf.cpp, gguf_values.cpp) share.
#pragma once

#include <cstdint>
#include <cstring>

namespace qt::gguf_detail {

// Kinds of metadata values, with GGUF's numbers.
enum Kind : uint32_t {
    kU8,
    kI8,
    kU16,
    kI16,
    kU32,
    kI32,
    kF32,
    kBool,
    kString,
    kArray,
    kU64,
    kI64,
    kF64,
    kKinds
};
inline constexpr int kKindBytes[kKinds] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

template <typename T>
T load(const uint8_t* data) {
    T value;
    std::memcpy(&value, data, sizeof value);
    return value;
}

}  // namespace qt::gguf_detail
