#include "params.h"

#include <cstddef>
#include <cstring>
#include <initializer_list>

#include "status.h"

namespace qt {
namespace {

// The first `bytes` of the caller's struct over the defaults. A C caller may have left any byte in
// a bool; in C++ only 0 and 1 may be read as one.
template <typename T>
void overlay(T& target, const T* source, size_t bytes, std::initializer_list<size_t> bools) {
    std::memcpy(static_cast<void*>(&target), source, bytes);
    for (const size_t at : bools) {
        auto* byte = reinterpret_cast<unsigned char*>(&target) + at;
        *byte = *byte != 0;
    }
}

template <typename T>
int version_of(const T* params) {
    if (!params) fail_params("params: is NULL");
    int version = 0;
    std::memcpy(&version, params, sizeof version);
    return version;
}

[[noreturn]] void bad_version(int version) {
    fail_params(strf("abi_version: is %d; this library takes %d to %d", version, QT_ABI_VERSION_MIN,
                     QT_ABI_VERSION));
}

}  // namespace

bool given(const char* text) {
    return text && *text;
}

bool is_auto(const char* lang) {
    if (!given(lang)) return true;
    const char* word = "auto";
    for (; *word && (*lang | 0x20) == *word; ++word) ++lang;
    return !*word && !*lang;
}

size_t init_params_bytes(int abi_version) {
    if (abi_version == 4 || abi_version == 5) return offsetof(qt_init_params, talker_kv_size);
    return abi_version == 6 ? sizeof(qt_init_params) : 0;
}

size_t tts_params_bytes(int abi_version) {
    if (abi_version == 4) return offsetof(qt_tts_params, onset_silence_ids);
    if (abi_version == 5) return offsetof(qt_tts_params, no_repeat_ngram_size);
    return abi_version == 6 ? sizeof(qt_tts_params) : 0;
}

qt_init_params default_init_params() {
    qt_init_params p = {};
    p.abi_version = QT_ABI_VERSION;
    p.use_fa = true;
    p.max_batch = 1;
    p.codec_chunk_sec = 24;
    p.talker_kv_size = 8192;
    p.precision = QT_PRECISION_EXACT;
    return p;
}

qt_tts_params default_tts_params() {
    qt_tts_params p = {};
    p.abi_version = QT_ABI_VERSION;
    p.seed = -1;
    p.max_new_tokens = 2048;
    p.do_sample = true;
    p.temperature = 0.9F;
    p.top_k = 50;
    p.top_p = 1;
    p.repetition_penalty = 1.05F;
    p.subtalker_do_sample = true;
    p.subtalker_temperature = 0.9F;
    p.subtalker_top_k = 50;
    p.subtalker_top_p = 1;
    p.no_repeat_ngram_size = 4;
    p.loop_max_period = 16;
    p.loop_repeats = 4;
    p.loop_window = 64;
    return p;
}

qt_init_params read_init_params(const qt_init_params* params) {
    const int version = version_of(params);
    const size_t bytes = init_params_bytes(version);
    if (bytes == 0) bad_version(version);
    qt_init_params p = default_init_params();
    overlay(p, params, bytes,
            {offsetof(qt_init_params, use_fa), offsetof(qt_init_params, clamp_fp16)});
    return p;
}

qt_tts_params read_tts_params(const qt_tts_params* params) {
    const int version = version_of(params);
    const size_t bytes = tts_params_bytes(version);
    if (bytes == 0) bad_version(version);
    qt_tts_params p = default_tts_params();
    overlay(p, params, bytes,
            {offsetof(qt_tts_params, do_sample), offsetof(qt_tts_params, subtalker_do_sample)});
    return p;
}

}  // namespace qt
