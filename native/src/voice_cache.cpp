#include "voice_cache.h"

#include <algorithm>
#include <cstring>

namespace qt {
namespace {

// Whole rows in which two prompts begin alike.
int rows_in_common(std::span<const float> a, std::span<const float> b, size_t width) {
    const size_t most = std::min(a.size(), b.size()) / width;
    size_t n = 0;
    while (n < most &&
           std::memcmp(a.data() + n * width, b.data() + n * width, width * sizeof(float)) == 0)
        ++n;
    return static_cast<int>(n);
}

size_t state_bytes(const CodecState& state) {
    return (state.cache.kv.size() + state.conv.size() + state.front.size()) * sizeof(float);
}

}  // namespace

VoiceCache::VoiceCache(const TransformerShape& shape, bool half, size_t most_bytes)
    : shape_(shape), half_(half), most_bytes_(most_bytes / 2) {}

template <typename T>
void VoiceCache::make_room(std::list<T>& entries, size_t bytes) {
    for (const T& entry : entries) bytes += entry.bytes;
    while (!entries.empty() && bytes > most_bytes_) {
        bytes -= entries.back().bytes;
        entries.pop_back();
    }
}

int VoiceCache::restore(std::span<const float> rows, KvCache& cache) {
    const auto width = static_cast<size_t>(shape_.hidden);
    auto best = beginnings_.end();
    int longest = 0;
    for (auto it = beginnings_.begin(); it != beginnings_.end(); ++it) {
        const int n = rows_in_common(rows, it->rows, width);
        if (n > longest) {
            longest = n;
            best = it;
        }
    }
    longest = std::min(longest, static_cast<int>(rows.size() / width) - 1);
    if (best == beginnings_.end() || longest == 0) return 0;
    cache.copy_prefix(best->cache, longest);
    beginnings_.splice(beginnings_.begin(), beginnings_, best);
    return longest;
}

void VoiceCache::keep(std::span<const float> rows, int n, const KvCache& cache) {
    const auto width = static_cast<size_t>(shape_.hidden);
    const std::span<const float> kept = rows.first(static_cast<size_t>(n) * width);
    for (const Beginning& known : beginnings_)
        if (rows_in_common(kept, known.rows, width) == n) return;
    const size_t values = size_t{2} * shape_.layers * shape_.kv_heads * shape_.head_dim * n;
    const size_t bytes = values * (half_ ? 2 : 4) + kept.size_bytes();
    if (n == 0 || bytes > most_bytes_) return;
    make_room(beginnings_, bytes);
    beginnings_.push_front({{kept.begin(), kept.end()}, KvCache(shape_, n, half_), bytes});
    beginnings_.front().cache.copy_prefix(cache, n);
}

const CodecState* VoiceCache::codec(std::span<const int32_t> codes) {
    const auto found = std::find_if(primed_.begin(), primed_.end(), [codes](const Primed& p) {
        return std::equal(p.codes.begin(), p.codes.end(), codes.begin(), codes.end());
    });
    if (found == primed_.end()) return nullptr;
    primed_.splice(primed_.begin(), primed_, found);
    return &primed_.front().state;
}

void VoiceCache::keep_codec(std::span<const int32_t> codes, const CodecState& state) {
    const size_t bytes = state_bytes(state) + codes.size_bytes();
    if (bytes > most_bytes_) return;
    make_room(primed_, bytes);
    primed_.push_front({{codes.begin(), codes.end()}, state, bytes});
}

}  // namespace qt
