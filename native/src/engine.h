// A loaded pair of models: everything that requests share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "breath.h"
#include "code_embedding.h"
#include "code_predictor.h"
#include "codec_decoder.h"
#include "codec_encoder.h"
#include "frame_cost.h"
#include "gguf.h"
#include "prompt.h"
#include "qt.h"
#include "speaker_encoder.h"
#include "talker.h"
#include "talker_info.h"
#include "threads.h"
#include "tokenizer.h"
#include "voice_cache.h"

namespace qt {

struct EngineOptions {
    std::string talker_path;
    std::string codec_path;
    int max_batch = 1;
    int kv_size = 8192;
    int n_threads = 0;  // 0: usable_cores()
    int stream_frames_max = 4;
    Precision talker = {};
    Precision predictor = {};
};

// Fewer bits for everything that a frame reads: QT_PRECISION_FAST.
void make_fast(EngineOptions& options);

// A voice as the prompt takes it.
struct VoiceInput {
    std::vector<float> embedding;  // the x-vector, [hidden] or empty
    std::vector<int32_t> codes;    // [frames, 16]
    int frames = 0;
};

struct Engine {
    explicit Engine(const EngineOptions& options);

    // Reference audio -> x-vector, and codes where they are wanted. Base models only. The encoders
    // are loaded the first time: many servers never clone.
    VoiceInput encode_voice(const float* audio, int n_samples, bool with_codes,
                            const Breath& breathe);

    FrameCost frame_cost() const;

    EngineOptions options;
    Gguf talker_file;
    Gguf codec_file;
    Pool pool;
    TalkerInfo info;
    Tokenizer tokenizer;
    CodeEmbedding codes;
    Talker talker;
    CodePredictor predictor;
    PromptBuilder prompts;
    CodecDecoder decoder;
    CodecDecoder::Workspace decoder_work;
    VoiceCache voices;
    std::unique_ptr<SpeakerEncoder> speaker_encoder;  // null until needed
    std::unique_ptr<CodecEncoder> codec_encoder;      // null until needed
};

}  // namespace qt
