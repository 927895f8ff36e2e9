// What requests with the same voice have in common, kept between them: the talker's keys and values
// of the prompt's beginning, and the codec's state after the reference.
//
// A prompt's beginning is recognised by its rows, bit for bit, so whatever goes into them (voice,
// language, instruction, layout) is part of the key without being named. Causality makes the copy
// exact: a request that starts from it gets the very numbers it would have computed.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "codec_decoder.h"
#include "transformer.h"

namespace qt {

class VoiceCache {
  public:
    // shape: of the talker; half: its caches' type; most_bytes: of keys, values and states
    // together.
    VoiceCache(const TransformerShape& shape, bool half, size_t most_bytes);

    // Copies the keys and values of the longest known beginning of rows [n, hidden] into `cache`;
    // returns how many positions that were, at most n - 1 (the last row's output is needed).
    int restore(std::span<const float> rows, KvCache& cache);
    // Remembers the first n positions of `cache`, which hold these rows.
    void keep(std::span<const float> rows, int n, const KvCache& cache);

    // The codec's state after these reference codes, or null. Valid until the next keep_codec().
    const CodecState* codec(std::span<const int32_t> codes);
    void keep_codec(std::span<const int32_t> codes, const CodecState& state);

  private:
    struct Beginning {
        std::vector<float> rows;
        KvCache cache;
        size_t bytes;
    };
    struct Primed {
        std::vector<int32_t> codes;
        CodecState state;
        size_t bytes;
    };

    template <typename T>
    void make_room(std::list<T>& entries, size_t bytes);

    TransformerShape shape_;
    bool half_;
    size_t most_bytes_;  // of each list
    // Most recently used first.
    std::list<Beginning> beginnings_;
    std::list<Primed> primed_;
};

}  // namespace qt
