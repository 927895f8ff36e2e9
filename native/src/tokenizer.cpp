#include "tokenizer.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "status.h"
#include "unicode.h"

namespace qt {
namespace {

using unicode::is_letter;
using unicode::is_number;
using unicode::is_space;

// GPT-2's printable stand-in for each byte: itself where Latin-1 prints it, else U+0100 onwards.
char32_t byte_symbol(int byte) {
    const auto prints = [](int b) {
        return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    };
    if (prints(byte)) return static_cast<char32_t>(byte);
    char32_t next = 0x100;
    for (int b = 0; b < byte; ++b) next += !prints(b);
    return next;
}

bool is_newline(char32_t cp) {
    return cp == '\r' || cp == '\n';
}
bool is_word(char32_t cp) {
    return is_letter(cp) || is_number(cp);
}

// 's 't 're 've 'm 'll 'd in any case. U+017F (long s) folds to s.
size_t contraction_length(std::u32string_view rest) {
    const auto lower = [&](size_t i) -> char32_t {
        if (i >= rest.size()) return 0;
        if (rest[i] == 0x17F) return 's';
        return rest[i] < 0x80 ? (rest[i] | 0x20) : rest[i];
    };
    const char32_t a = lower(1), b = lower(2);
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
    return a == 's' || a == 't' || a == 'm' || a == 'd' ? 2 : 0;
}

// The part of a run of white space that is one piece:  \s*[\r\n]+ | \s+(?!\S) | \s+
size_t space_piece_end(std::u32string_view text, size_t at) {
    size_t end = at, after_newline = at;
    while (end < text.size() && is_space(text[end])) {
        ++end;
        if (is_newline(text[end - 1])) after_newline = end;
    }
    if (after_newline != at) return after_newline;
    // The last space of a run belongs to the word after it, unless it is the whole run.
    return end < text.size() && end - at > 1 ? end - 1 : end;
}

struct Candidate {
    int32_t rank;
    uint32_t left, right;  // indices of the nodes it would join
    int32_t left_id, right_id;
    // Lowest rank first, then leftmost.
    bool operator<(const Candidate& o) const {
        return rank != o.rank ? rank > o.rank : left > o.left;
    }
};

struct Node {
    int32_t id;
    uint32_t prev, next;
};
constexpr uint32_t kNone = ~uint32_t{0};

}  // namespace

// (?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N} | ?[^\s\p{L}\p{N}]+[\r\n]*
// | \s*[\r\n]+ | \s+(?!\S) | \s+        (first alternative that matches wins)
size_t qwen2_piece_end(std::u32string_view text, size_t at) {
    const size_t n = text.size();
    const char32_t first = text[at];
    const auto letters_end = [&](size_t i) {
        while (i < n && is_letter(text[i])) ++i;
        return i;
    };
    if (first == '\'') {
        if (const size_t length = contraction_length(text.substr(at))) return at + length;
    }
    if (is_letter(first)) return letters_end(at);
    if (is_number(first)) return at + 1;
    if (!is_newline(first) && at + 1 < n && is_letter(text[at + 1])) return letters_end(at + 1);

    const auto is_symbol = [](char32_t cp) { return !is_space(cp) && !is_word(cp); };
    size_t end = at + (first == ' ');
    if (end < n && is_symbol(text[end])) {
        while (end < n && is_symbol(text[end])) ++end;
        while (end < n && is_newline(text[end])) ++end;
        return end;
    }
    return space_piece_end(text, at);
}

Tokenizer::Tokenizer(std::span<const std::string> tokens, std::span<const std::string> merges,
                     const std::string& file) {
    if (tokens.empty()) fail_file(file, "tokenizer.ggml.tokens is empty");
    ids_.reserve(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) ids_.emplace(tokens[i], static_cast<int32_t>(i));
    for (int byte = 0; byte < 256; ++byte) {
        std::string symbol;
        unicode::append_utf8(byte_symbol(byte), symbol);
        byte_ids_[byte] = find(symbol).value_or(-1);
    }
    table_.assign(std::bit_ceil(merges.size() * 2 + 1), Merge{kNoPair, 0, 0});
    for (size_t rank = 0; rank < merges.size(); ++rank) {
        const std::string problem = add_merge(merges[rank], static_cast<int32_t>(rank));
        if (!problem.empty())
            fail_file(file, strf("tokenizer.ggml.merges[%zu] %s", rank, problem.c_str()));
    }
}

std::optional<int32_t> Tokenizer::find(std::string_view token) const {
    const auto it = ids_.find(std::string(token));
    return it == ids_.end() ? std::nullopt : std::optional(it->second);
}

namespace {
size_t pair_hash(uint64_t pair) {
    pair *= 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio
    return static_cast<size_t>(pair ^ (pair >> 32));
}
}  // namespace

std::string Tokenizer::add_merge(std::string_view merge, int32_t rank) {
    const size_t space = merge.find(' ', 1);
    const auto left = find(merge.substr(0, space));
    const auto right = space == merge.npos ? std::nullopt : find(merge.substr(space + 1));
    if (!left || !right)
        return "'" + std::string(merge) + "' is not a pair of tokens of the vocabulary";
    const std::string joined =
        std::string(merge.substr(0, space)) + std::string(merge.substr(space + 1));
    const auto id = find(joined);
    if (!id) return "makes '" + joined + "', which the vocabulary lacks";
    const uint64_t pair =
        uint64_t{static_cast<uint32_t>(*left)} << 32 | static_cast<uint32_t>(*right);
    const size_t mask = table_.size() - 1;
    size_t slot = pair_hash(pair) & mask;
    while (table_[slot].pair != kNoPair) {
        if (table_[slot].pair == pair) return {};  // a repeated merge: the first rank counts
        slot = (slot + 1) & mask;
    }
    table_[slot] = {pair, rank, *id};
    return {};
}

const Tokenizer::Merge* Tokenizer::find_merge(int32_t left, int32_t right) const {
    const uint64_t pair =
        uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    const size_t mask = table_.size() - 1;
    for (size_t slot = pair_hash(pair) & mask; table_[slot].pair != kNoPair;
         slot = (slot + 1) & mask)
        if (table_[slot].pair == pair) return &table_[slot];
    return nullptr;
}

// Joins the lowest-ranked neighbours until none is left: O(n log n) with a heap over a linked list.
void Tokenizer::merge_piece(std::string_view bytes, std::vector<int32_t>& out) const {
    std::vector<Node> nodes;
    nodes.reserve(bytes.size());
    for (const char c : bytes) {
        const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
        if (id < 0) continue;  // as Hugging Face does with a byte that has no token
        const auto i = static_cast<uint32_t>(nodes.size());
        nodes.push_back({id, i == 0 ? kNone : i - 1, kNone});
        if (i > 0) nodes[i - 1].next = i;
    }
    std::priority_queue<Candidate> heap;
    const auto offer = [&](uint32_t left, uint32_t right) {
        if (left == kNone || right == kNone) return;
        if (const Merge* m = find_merge(nodes[left].id, nodes[right].id))
            heap.push({m->rank, left, right, nodes[left].id, nodes[right].id});
    };
    for (uint32_t i = 1; i < nodes.size(); ++i) offer(i - 1, i);
    while (!heap.empty()) {
        const Candidate c = heap.top();
        heap.pop();
        Node &left = nodes[c.left], &right = nodes[c.right];
        // Stale when either side has been joined since (a joined-away node has id -1).
        if (left.id != c.left_id || right.id != c.right_id || left.next != c.right) continue;
        left.id = find_merge(c.left_id, c.right_id)->id;
        right.id = -1;
        left.next = right.next;
        if (left.next != kNone) nodes[left.next].prev = c.left;
        offer(left.prev, c.left);
        offer(c.left, left.next);
    }
    for (uint32_t i = nodes.empty() ? kNone : 0; i != kNone; i = nodes[i].next)
        out.push_back(nodes[i].id);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
    std::u32string cps;
    size_t bad = 0;
    if (!unicode::decode_utf8(text, cps, bad))
        fail_params(strf("text: not valid UTF-8 at byte %zu", bad));
    unicode::to_nfc(cps);
    std::vector<int32_t> ids;
    ids.reserve(text.size() / 2);
    std::string piece;
    for (size_t at = 0; at < cps.size();) {
        const size_t end = qwen2_piece_end(cps, at);
        piece.clear();
        for (; at < end; ++at) unicode::append_utf8(cps[at], piece);
        merge_piece(piece, ids);
    }
    return ids;
}

}  // namespace qt
