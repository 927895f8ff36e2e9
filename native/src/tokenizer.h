// Text to ids the way Qwen2 does it: NFC, the Qwen2 split, byte-level BPE.
//
// Strings of special tokens (such as "<|im_end|>") are ordinary text here: the caller adds specials
// by id, so nothing inside a user's text can be obeyed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace qt {

class Tokenizer {
  public:
    // tokens: the vocabulary, index = id. merges: "left right" by rank (tokenizer.ggml.tokens and
    // .merges of a GGUF). Throws Error, naming `file`, when they do not fit together.
    Tokenizer(std::span<const std::string> tokens, std::span<const std::string> merges,
              const std::string& file);

    // Ids of `text`. Throws Error (invalid_params) when it is not UTF-8.
    std::vector<int32_t> encode(std::string_view text) const;

    // Id of a token as the vocabulary spells it.
    std::optional<int32_t> find(std::string_view token) const;

    size_t size() const { return ids_.size(); }

  private:
    struct Merge {
        uint64_t pair;  // left id << 32 | right id, kNoPair when the slot is free
        int32_t rank;
        int32_t id;
    };
    static constexpr uint64_t kNoPair = ~uint64_t{0};

    // A message when it does not fit the vocabulary, else empty.
    std::string add_merge(std::string_view merge, int32_t rank);
    const Merge* find_merge(int32_t left, int32_t right) const;
    void merge_piece(std::string_view bytes, std::vector<int32_t>& out) const;

    std::unordered_map<std::string, int32_t> ids_;
    std::vector<Merge> table_;  // open addressing, size a power of two
    int32_t byte_ids_[256];     // -1 when the vocabulary lacks the byte
};

// One past the last code point of the piece that starts at text[at] (the Qwen2 split).
size_t qwen2_piece_end(std::u32string_view text, size_t at);

}  // namespace qt
