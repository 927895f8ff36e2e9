#include "unicode.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace qt::unicode {
namespace {

struct Range {
    char32_t first, last;
};
struct ClassRange {
    char32_t first, last;
    uint8_t ccc;
};
struct Decomposition {
    char32_t cp;
    uint16_t offset;
    uint8_t length;
};
struct Composition {
    char32_t a, b, cp;
};

#include "unicode_tables.inc"

template <typename T, size_t N>
const T* find_range(const T (&table)[N], char32_t cp) {
    const T* it = std::upper_bound(std::begin(table), std::end(table), cp,
                                   [](char32_t c, const T& r) { return c < r.first; });
    if (it == std::begin(table)) return nullptr;
    --it;
    return cp <= it->last ? it : nullptr;
}

// Hangul syllables are arithmetic (Unicode, section 3.12).
constexpr char32_t kSBase = 0xAC00, kLBase = 0x1100, kVBase = 0x1161, kTBase = 0x11A7;
constexpr char32_t kLCount = 19, kVCount = 21, kTCount = 28, kSCount = kLCount * kVCount * kTCount;

uint8_t combining_class(char32_t cp) {
    if (cp < 0x300) return 0;
    const ClassRange* r = find_range(kCombining, cp);
    return r ? r->ccc : 0;
}

void decompose(char32_t cp, std::u32string& out) {
    if (cp < 0xC0) {
        out.push_back(cp);
        return;
    }
    if (cp >= kSBase && cp < kSBase + kSCount) {
        const char32_t s = cp - kSBase;
        out.push_back(kLBase + s / (kVCount * kTCount));
        out.push_back(kVBase + s % (kVCount * kTCount) / kTCount);
        if (s % kTCount) out.push_back(kTBase + s % kTCount);
        return;
    }
    const auto* it = std::lower_bound(std::begin(kDecompositions), std::end(kDecompositions), cp,
                                      [](const Decomposition& d, char32_t c) { return d.cp < c; });
    if (it != std::end(kDecompositions) && it->cp == cp) {
        out.append(kDecomposed + it->offset, it->length);
    } else {
        out.push_back(cp);
    }
}

// The composite of a and b, or 0.
char32_t compose(char32_t a, char32_t b) {
    if (a >= kLBase && a < kLBase + kLCount && b >= kVBase && b < kVBase + kVCount)
        return kSBase + ((a - kLBase) * kVCount + (b - kVBase)) * kTCount;
    if (a >= kSBase && a < kSBase + kSCount && (a - kSBase) % kTCount == 0 && b > kTBase &&
        b < kTBase + kTCount)
        return a + (b - kTBase);
    const auto* it =
        std::lower_bound(std::begin(kCompositions), std::end(kCompositions), std::pair(a, b),
                         [](const Composition& c, const std::pair<char32_t, char32_t>& k) {
                             return std::pair(c.a, c.b) < k;
                         });
    return it != std::end(kCompositions) && it->a == a && it->b == b ? it->cp : 0;
}

// Canonical ordering: stable sort of each run of marks by combining class.
void order_marks(std::u32string& text) {
    for (size_t i = 0; i < text.size();) {
        if (combining_class(text[i]) == 0) {
            ++i;
            continue;
        }
        size_t end = i;
        while (end < text.size() && combining_class(text[end]) != 0) ++end;
        std::stable_sort(
            text.begin() + static_cast<std::ptrdiff_t>(i),
            text.begin() + static_cast<std::ptrdiff_t>(end),
            [](char32_t x, char32_t y) { return combining_class(x) < combining_class(y); });
        i = end;
    }
}

void compose_all(std::u32string& text) {
    size_t out = 0, starter = SIZE_MAX;
    uint8_t last_class = 0;  // of the last mark kept after the starter, 0 when there is none
    for (char32_t cp : text) {
        const uint8_t ccc = combining_class(cp);
        const bool adjacent = starter != SIZE_MAX && out == starter + 1;
        const bool blocked = !adjacent && (last_class == 0 || last_class >= ccc);
        if (starter != SIZE_MAX && !blocked) {
            if (const char32_t joined = compose(text[starter], cp)) {
                text[starter] = joined;
                continue;
            }
        }
        if (ccc == 0) starter = out;
        last_class = ccc;
        text[out++] = cp;
    }
    text.resize(out);
}

}  // namespace

const char* version() {
    return kUnicodeVersion;
}

bool is_letter(char32_t cp) {
    if (cp < 0x80) return (cp | 0x20) >= 'a' && (cp | 0x20) <= 'z';
    return find_range(kLetters, cp) != nullptr;
}

bool is_number(char32_t cp) {
    if (cp < 0x80) return cp >= '0' && cp <= '9';
    return find_range(kNumbers, cp) != nullptr;
}

bool is_space(char32_t cp) {
    if (cp < 0x80) return cp == ' ' || (cp >= '\t' && cp <= '\r');
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

bool decode_utf8(std::string_view bytes, std::u32string& out, size_t& bad_offset) {
    out.reserve(out.size() + bytes.size());
    for (size_t i = 0; i < bytes.size();) {
        const auto lead = static_cast<uint8_t>(bytes[i]);
        bad_offset = i;
        if (lead < 0x80) {
            out.push_back(lead);
            ++i;
            continue;
        }
        const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
        if (lead < 0xC2 || lead > 0xF4 || i + length > bytes.size()) return false;
        char32_t cp = lead & (0x7Fu >> length);
        for (size_t k = 1; k < length; ++k) {
            const auto next = static_cast<uint8_t>(bytes[i + k]);
            if ((next & 0xC0) != 0x80) return false;
            cp = (cp << 6) | (next & 0x3F);
        }
        constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
        if (cp < kSmallest[length] || cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) return false;
        out.push_back(cp);
        i += length;
    }
    return true;
}

void append_utf8(char32_t cp, std::string& out) {
    const auto tail = [&](int shift) {
        out.push_back(static_cast<char>(0x80 | ((cp >> shift) & 0x3F)));
    };
    if (cp < 0x80) {
        out.push_back(static_cast<char>(cp));
    } else if (cp < 0x800) {
        out.push_back(static_cast<char>(0xC0 | (cp >> 6)));
        tail(0);
    } else if (cp < 0x10000) {
        out.push_back(static_cast<char>(0xE0 | (cp >> 12)));
        tail(6);
        tail(0);
    } else {
        out.push_back(static_cast<char>(0xF0 | (cp >> 18)));
        tail(12);
        tail(6);
        tail(0);
    }
}

void to_nfc(std::u32string& text) {
    // Below U+0300 nothing combines and every code point is its own NFC.
    if (std::all_of(text.begin(), text.end(), [](char32_t cp) { return cp < 0x300; })) return;
    std::u32string parts;
    parts.reserve(text.size() + text.size() / 4);
    for (char32_t cp : text) decompose(cp, parts);
    order_marks(parts);
    compose_all(parts);
    text = std::move(parts);
}

}  // namespace qt::unicode
