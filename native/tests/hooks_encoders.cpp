// Test hooks: the speaker encoder and the codec encoder over a C interface for Python.
#include <cstring>

#include "../src/codec_encoder.h"
#include "../src/mel.h"
#include "../src/speaker_encoder.h"
#include "hooks.h"

// out [frames, 128]; returns the frames.
HOOK int32_t hook_mel(const float* audio, int32_t n, float* out) {
    qt::Pool pool(2);
    const std::vector<float> mel = qt::MelSpectrogram()(pool, audio, n);
    std::copy(mel.begin(), mel.end(), out);
    return qt::MelSpectrogram::frames(n);
}

// The x-vector's length, or -1 with hook_error(); out has room for 8192 values.
HOOK int32_t hook_speaker(const char* path, int32_t threads, const float* audio, int32_t n,
                          float* out) {
    return hooks::guard(int32_t{-1}, [&] {
        qt::Pool pool(threads);
        const qt::Gguf file(path);
        const std::vector<float> x = qt::SpeakerEncoder(file, pool)(pool, audio, n);
        std::copy(x.begin(), x.end(), out);
        return static_cast<int32_t>(x.size());
    });
}

// The number of codes, or -1 with hook_error().
HOOK int32_t hook_encode(const char* path, int32_t threads, const float* audio, int32_t n,
                         int32_t* out) {
    return hooks::guard(int32_t{-1}, [&] {
        qt::Pool pool(threads);
        const qt::Gguf file(path);
        const std::vector<int32_t> codes = qt::CodecEncoder(file, pool)(pool, audio, n);
        std::copy(codes.begin(), codes.end(), out);
        return static_cast<int32_t>(codes.size());
    });
}
