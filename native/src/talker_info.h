// What a talker file says about itself: its kind, its control tokens, its languages and speakers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gguf.h"

namespace qt {

enum class ModelKind { base, custom_voice, voice_design };
const char* model_kind_name(ModelKind kind);

struct Language {
    std::string name;  // lower case, as in the file: "english"
    int id = 0;        // a row of the talker's codec embedding
};

struct SpeakerInfo {
    std::string name;
    int id = 0;
    std::string dialect;  // the language to speak for chinese or none; often ""
};

struct TalkerInfo {
    explicit TalkerInfo(const Gguf& file);

    ModelKind kind = ModelKind::base;
    // The 0.6B custom_voice model was not trained on instructions; the official package drops them.
    bool takes_instructions = false;
    int text_vocab = 0;
    int text_hidden = 0;
    int codec_vocab = 0;
    int codes = 0;  // real codes are 0..codes-1; 2048

    int pad = 0, bos = 0, eos = 0, think = 0, nothink = 0, think_bos = 0,
        think_eos = 0;                                                    // codec side
    int im_start = 0, im_end = 0, tts_pad = 0, tts_bos = 0, tts_eos = 0;  // text side

    std::vector<Language> languages;
    std::vector<SpeakerInfo> speakers;

    // Case does not matter. Throw Error naming the field and the names there are.
    const Language& language(std::string_view name) const;
    const SpeakerInfo& speaker(std::string_view name) const;

  private:
    void read_languages(const Gguf& file);
    void read_speakers(const Gguf& file);
};

}  // namespace qt
