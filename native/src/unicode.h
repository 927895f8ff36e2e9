// Unicode as the tokenizer needs it: strict UTF-8, NFC, and three classes of code points.
#pragma once

#include <string>
#include <string_view>

namespace qt::unicode {

const char* version();  // of the tables, e.g. "14.0.0"

bool is_letter(char32_t cp);  // general category L*
bool is_number(char32_t cp);  // general category N*
bool is_space(char32_t cp);   // White_Space

// Decodes strict UTF-8 (no overlong forms, no surrogates, nothing above U+10FFFF).
// Returns true and appends to `out`, or returns false with the offset of the first bad byte.
bool decode_utf8(std::string_view bytes, std::u32string& out, size_t& bad_offset);

void append_utf8(char32_t cp, std::string& out);

// Normalisation form C, in place. Linear in the length except inside one run of combining marks.
void to_nfc(std::u32string& text);

}  // namespace qt::unicode
