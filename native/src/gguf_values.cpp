// Typed access to what gguf.cpp has read and checked.

#include <cmath>

#include "gguf.h"
#include "gguf_detail.h"
#include "status.h"

namespace qt {

using namespace gguf_detail;

namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
    std::string text = "[";
    for (size_t i = 0; i < shape.size(); ++i) {
        if (i) text += ", ";
        text += shape[i] < 0 ? "any" : std::to_string(shape[i]);
    }
    return text + "]";
}

}  // namespace

const Gguf::Value& Gguf::value(const std::string& key, uint32_t type, const char* expected) const {
    const auto found = values_.find(key);
    if (found == values_.end()) fail("key '" + key + "' is missing");
    if (found->second.type != type) fail("key '" + key + "' is not " + expected);
    return found->second;
}

int64_t Gguf::integer_at(uint32_t type, const uint8_t* data, const std::string& key) const {
    switch (type) {
        case kU8:
            return load<uint8_t>(data);
        case kI8:
            return load<int8_t>(data);
        case kU16:
            return load<uint16_t>(data);
        case kI16:
            return load<int16_t>(data);
        case kU32:
            return load<uint32_t>(data);
        case kI32:
            return load<int32_t>(data);
        case kI64:
            return load<int64_t>(data);
        case kU64: {
            const auto v = load<uint64_t>(data);
            return v > INT64_MAX ? INT64_MAX : static_cast<int64_t>(v);
        }
        default:
            fail("key '" + key + "' is not an integer");
    }
}

int Gguf::integer(const std::string& key, int64_t lowest, int64_t highest) const {
    const auto found = values_.find(key);
    if (found == values_.end()) fail("key '" + key + "' is missing");
    const int64_t v = integer_at(found->second.type, found->second.data, key);
    if (v < lowest || v > highest)
        fail(strf("key '%s' is %lld; %lld to %lld is possible", key.c_str(),
                  static_cast<long long>(v), static_cast<long long>(lowest),
                  static_cast<long long>(highest)));
    return static_cast<int>(v);
}

float Gguf::number(const std::string& key) const {
    const float v = load<float>(value(key, kF32, "a number").data);
    if (!std::isfinite(v)) fail("key '" + key + "' is not finite");
    return v;
}

bool Gguf::boolean(const std::string& key) const {
    return *value(key, kBool, "true or false").data != 0;
}

std::string_view Gguf::string(const std::string& key) const {
    const Value& v = value(key, kString, "a string");
    return {reinterpret_cast<const char*>(v.data), static_cast<size_t>(v.count)};
}

std::vector<std::string_view> Gguf::strings(const std::string& key) const {
    const Value& v = value(key, kArray, "an array");
    if (v.item_type != kString) fail("key '" + key + "' is not an array of strings");
    std::vector<std::string_view> out;
    out.reserve(static_cast<size_t>(v.count));
    const uint8_t* at = v.data;  // walked once already: the lengths are known to fit
    for (uint64_t i = 0; i < v.count; ++i) {
        const auto length = load<uint64_t>(at);
        out.emplace_back(reinterpret_cast<const char*>(at + 8), static_cast<size_t>(length));
        at += 8 + length;
    }
    return out;
}

std::vector<int32_t> Gguf::integers(const std::string& key) const {
    const Value& v = value(key, kArray, "an array");
    if (v.item_type == kString || v.item_type == kF32 || v.item_type == kF64 ||
        v.item_type == kBool)
        fail("key '" + key + "' is not an array of integers");
    std::vector<int32_t> out;
    out.reserve(static_cast<size_t>(v.count));
    for (uint64_t i = 0; i < v.count; ++i) {
        const int64_t item = integer_at(
            v.item_type, v.data + i * static_cast<uint64_t>(kKindBytes[v.item_type]), key);
        if (item < INT32_MIN || item > INT32_MAX)
            fail("key '" + key + "' holds a number beyond int32");
        out.push_back(static_cast<int32_t>(item));
    }
    return out;
}

const Tensor* Gguf::find(const std::string& name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
}

const Tensor& Gguf::tensor(const std::string& name, const std::vector<int64_t>& shape) const {
    const Tensor* t = find(name);
    if (!t) fail("tensor '" + name + "' is missing");
    bool same = t->shape.size() == shape.size();
    for (size_t i = 0; same && i < shape.size(); ++i)
        same = shape[i] < 0 || shape[i] == t->shape[i];
    if (!same)
        fail("tensor '" + name + "' has shape " + shape_text(t->shape) + ", expected " +
             shape_text(shape));
    return *t;
}

}  // namespace qt
