#include "talker_info.h"

#include "status.h"

namespace qt {
namespace {

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return out;
}

// Whatever a caller sent, in a message: short, and no control characters.
std::string shown(std::string_view text) {
    std::string out;
    for (const char c : text.substr(0, 40)) out += static_cast<unsigned char>(c) < 32 ? '?' : c;
    return "'" + out + (text.size() > 40 ? "...'" : "'");
}

template <typename T>
std::string names(const std::vector<T>& items) {
    std::string out;
    for (const T& item : items) out += (out.empty() ? "" : ", ") + item.name;
    return out.empty() ? "none" : out;
}

// Arrays of one table: all as long as the names.
void same_length(const Gguf& file, const std::string& key, size_t have, size_t want) {
    if (have != want)
        file.fail(strf("key '%s' has %zu items for %zu names", key.c_str(), have, want));
}

}  // namespace

const char* model_kind_name(ModelKind kind) {
    switch (kind) {
        case ModelKind::base:
            return "base";
        case ModelKind::custom_voice:
            return "custom_voice";
        case ModelKind::voice_design:
            return "voice_design";
    }
    return "";
}

TalkerInfo::TalkerInfo(const Gguf& file) {
    const std::string p = "qwen3-tts.";
    const std::string type(file.string(p + "model_type"));
    if (type == "base")
        kind = ModelKind::base;
    else if (type == "custom_voice")
        kind = ModelKind::custom_voice;
    else if (type == "voice_design")
        kind = ModelKind::voice_design;
    else
        file.fail("key 'qwen3-tts.model_type' is " + shown(type) +
                  "; base, custom_voice and voice_design are known");
    const bool small = file.has(p + "model_size") && file.string(p + "model_size") == "0b6";
    takes_instructions =
        kind == ModelKind::voice_design || (kind == ModelKind::custom_voice && !small);
    text_vocab = file.integer(p + "talker.text_vocab_size", 16, 1 << 24);
    text_hidden = file.integer(p + "talker.text_hidden_size", 1, 1 << 16);
    codec_vocab = file.integer(p + "talker.vocab_size", 16, 1 << 20);
    codes = file.integer(p + "code_pred.vocab_size", 2, codec_vocab);
    if (file.integer(p + "num_code_groups", 1, 1024) != 16)
        file.fail("key 'qwen3-tts.num_code_groups' is not 16");
    const struct {
        int* id;
        const char* key;
        int limit;
    } ids[] = {
        {&pad, "codec.pad_id", codec_vocab},
        {&bos, "codec.bos_id", codec_vocab},
        {&eos, "codec.eos_id", codec_vocab},
        {&think, "codec.think_id", codec_vocab},
        {&nothink, "codec.nothink_id", codec_vocab},
        {&think_bos, "codec.think_bos_id", codec_vocab},
        {&think_eos, "codec.think_eos_id", codec_vocab},
        {&im_start, "text.im_start_id", text_vocab},
        {&im_end, "text.im_end_id", text_vocab},
        {&tts_pad, "text.tts_pad_id", text_vocab},
        {&tts_bos, "text.tts_bos_id", text_vocab},
        {&tts_eos, "text.tts_eos_id", text_vocab},
    };
    for (const auto& id : ids) *id.id = file.integer(p + id.key, 0, id.limit - 1);
    if (eos < codes) file.fail("key 'qwen3-tts.codec.eos_id' lies among the real codes");
    read_languages(file);
    read_speakers(file);
}

void TalkerInfo::read_languages(const Gguf& file) {
    const std::string p = "qwen3-tts.codec.language_";
    if (!file.has(p + "names")) return;
    const auto language_names = file.strings(p + "names");
    const auto ids = file.integers(p + "ids");
    same_length(file, p + "ids", ids.size(), language_names.size());
    for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < 0 || ids[i] >= codec_vocab)
            file.fail("key '" + p + "ids' holds an id out of range");
        languages.push_back({lower(language_names[i]), ids[i]});
    }
}

void TalkerInfo::read_speakers(const Gguf& file) {
    const std::string p = "qwen3-tts.codec.speaker_";
    if (!file.has(p + "names")) return;
    const auto speaker_names = file.strings(p + "names");
    const auto ids = file.integers(p + "ids");
    const auto dialects = file.strings(p + "dialects");
    same_length(file, p + "ids", ids.size(), speaker_names.size());
    same_length(file, p + "dialects", dialects.size(), speaker_names.size());
    for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < 0 || ids[i] >= codec_vocab)
            file.fail("key '" + p + "ids' holds an id out of range");
        speakers.push_back({std::string(speaker_names[i]), ids[i], lower(dialects[i])});
        if (!dialects[i].empty()) language(dialects[i]);
    }
}

const Language& TalkerInfo::language(std::string_view name) const {
    const std::string wanted = lower(name);
    for (const Language& language : languages)
        if (language.name == wanted) return language;
    fail_params("lang: " + shown(name) + " is not known; this model speaks auto, " +
                names(languages));
}

const SpeakerInfo& TalkerInfo::speaker(std::string_view name) const {
    const std::string wanted = lower(name);
    for (const SpeakerInfo& speaker : speakers)
        if (lower(speaker.name) == wanted) return speaker;
    fail_params("speaker: " + shown(name) + " is not known; this model has " + names(speakers));
}

}  // namespace qt
