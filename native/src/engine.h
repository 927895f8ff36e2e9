// A loaded pair of models: everything that requests share.
#pragma once

#include <memory>
#include <string>

#include "code_embedding.h"
#include "code_predictor.h"
#include "codec_decoder.h"
#include "gguf.h"
#include "prompt.h"
#include "qt.h"
#include "talker.h"
#include "talker_info.h"
#include "threads.h"
#include "tokenizer.h"

namespace qt {

struct EngineOptions {
    std::string talker_path;
    std::string codec_path;
    int max_batch = 1;
    int kv_size = 8192;
    int n_threads = 0;  // 0: usable_cores()
    int stream_frames_max = 4;
};

struct Engine {
    explicit Engine(const EngineOptions& options);

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
};

}  // namespace qt
