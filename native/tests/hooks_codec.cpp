// Test hooks: the codec decoder over a C interface for Python.
#include <algorithm>

#include "../src/codec_decoder.h"
#include "hooks.h"

namespace {

struct Codec {
    Codec(const char* path, int threads)
        : pool(threads), file(path), decoder(file, pool), work(decoder) {}
    qt::Pool pool;
    qt::Gguf file;
    qt::CodecDecoder decoder;
    qt::CodecDecoder::Workspace work;
};

}  // namespace

HOOK void* hook_codec_new(const char* path, int32_t threads) {
    return hooks::guard(static_cast<void*>(nullptr),
                        [&]() -> void* { return new Codec(path, threads); });
}

HOOK void hook_codec_free(void* codec) {
    delete static_cast<Codec*>(codec);
}

HOOK void hook_codec_shape(const void* codec, int32_t* out) {
    const auto& d = static_cast<const Codec*>(codec)->decoder;
    out[0] = d.groups();
    out[1] = d.codebook_size();
    out[2] = d.samples_per_frame();
    out[3] = d.sample_rate();
}

HOOK void* hook_codec_state(const void* codec) {
    return new qt::CodecState(static_cast<const Codec*>(codec)->decoder.new_state());
}

HOOK void* hook_codec_state_copy(const void* state) {
    return new qt::CodecState(*static_cast<const qt::CodecState*>(state));
}

HOOK void hook_codec_state_free(void* state) {
    delete static_cast<qt::CodecState*>(state);
}

// audio null: prime instead, in steps that fit no block. 0, or -1 with hook_error().
HOOK int32_t hook_codec_decode(void* codec, void* state, const int32_t* codes, int32_t frames,
                               float* audio) {
    return hooks::guard(int32_t{-1}, [&] {
        auto& c = *static_cast<Codec*>(codec);
        auto& s = *static_cast<qt::CodecState*>(state);
        if (audio)
            c.decoder.decode(c.pool, s, c.work, codes, frames, audio);
        else
            for (int t = 0; t < frames; t += 7)
                c.decoder.prime(c.pool, s, c.work, codes, frames, t, std::min(frames, t + 7));
        return 0;
    });
}
