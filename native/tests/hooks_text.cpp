// Test hooks (library qt_testhooks, never shipped): the tokenizer over a C interface for Python.
#include <exception>
#include <string>
#include <vector>

#include "../src/tokenizer.h"
#include "../src/unicode.h"
#include "hooks.h"

namespace {

// "a\0b\0c\0" of total length n -> {"a", "b", "c"}
std::vector<std::string> split_strings(const char* data, size_t n) {
    std::vector<std::string> out;
    for (size_t i = 0; i < n; i += out.back().size() + 1) out.emplace_back(data + i);
    return out;
}

}  // namespace

HOOK const char* hook_error() {
    return hooks::last_error().c_str();
}

HOOK void* hook_tokenizer_new(const char* tokens, size_t n_tokens, const char* merges,
                              size_t n_merges) {
    return hooks::guard(static_cast<void*>(nullptr), [&]() -> void* {
        return new qt::Tokenizer(split_strings(tokens, n_tokens), split_strings(merges, n_merges),
                                 "vocabulary");
    });
}

HOOK void hook_tokenizer_free(void* tokenizer) {
    delete static_cast<qt::Tokenizer*>(tokenizer);
}

// Number of ids, or -1 with hook_error(). Writes at most `capacity`.
HOOK int64_t hook_tokenizer_encode(const void* tokenizer, const char* text, size_t n, int32_t* ids,
                                   size_t capacity) {
    return hooks::guard(int64_t{-1}, [&] {
        const auto out = static_cast<const qt::Tokenizer*>(tokenizer)->encode({text, n});
        std::copy_n(out.begin(), std::min(capacity, out.size()), ids);
        return static_cast<int64_t>(out.size());
    });
}

HOOK const char* hook_unicode_version() {
    return qt::unicode::version();
}

// UTF-32 in and out; `out` has room for 4 * n code points. Returns the new length.
HOOK size_t hook_nfc(const char32_t* in, size_t n, char32_t* out) {
    std::u32string text(in, n);
    qt::unicode::to_nfc(text);
    std::copy(text.begin(), text.end(), out);
    return text.size();
}

// Bit 0 letter, bit 1 number, bit 2 white space, for each code point of [0, n).
HOOK void hook_classes(uint8_t* out, uint32_t n) {
    for (uint32_t cp = 0; cp < n; ++cp)
        out[cp] =
            static_cast<uint8_t>(qt::unicode::is_letter(cp) | qt::unicode::is_number(cp) << 1 |
                                 qt::unicode::is_space(cp) << 2);
}
