// Is every field of a request what qt.h says it may be?

#include <cmath>

#include "params.h"
#include "status.h"
#include "unicode.h"

namespace qt {
namespace {

constexpr int kMinReference = QT_SAMPLES_PER_FRAME;
constexpr int kMaxReference = 120 * QT_SAMPLE_RATE;
// Banning every code would leave nothing to choose.
constexpr int kMaxOnsetBans = 1024;

void check_range(const char* field, int64_t value, int64_t lowest, int64_t highest) {
    if (value < lowest || value > highest)
        fail_params(strf("%s: is %lld; %lld to %lld is possible", field,
                         static_cast<long long>(value), static_cast<long long>(lowest),
                         static_cast<long long>(highest)));
}

// Decodes a string; the text is valid UTF-8 afterwards. `blank` is set when nothing is to be seen.
void check_text(const char* field, const char* text, bool* blank = nullptr) {
    std::u32string decoded;
    size_t bad = 0;
    if (!unicode::decode_utf8(text, decoded, bad))
        fail_params(strf("%s: is not UTF-8 (byte %zu)", field, bad));
    if (!blank) return;
    *blank = true;
    for (const char32_t c : decoded) *blank = *blank && unicode::is_space(c);
}

void check_sampling(const char* prefix, float temperature, int top_k, float top_p) {
    const std::string p(prefix);
    if (!std::isfinite(temperature) || temperature < 0)
        fail_params(p + strf("temperature: is %g; a finite number >= 0 is expected",
                             static_cast<double>(temperature)));
    if (top_k < 0) fail_params(p + strf("top_k: is %d; 0 (off) or more is expected", top_k));
    if (!(top_p > 0 && top_p <= 1))
        fail_params(p + strf("top_p: is %g; more than 0, at most 1 is expected",
                             static_cast<double>(top_p)));
}

void check_guards(const qt_tts_params& p) {
    check_range("loop_window", p.loop_window, 2, 1024);
    check_range("loop_max_period", p.loop_max_period, 1, p.loop_window);
    check_range("loop_repeats", p.loop_repeats, 0, 1024);
    check_range("no_repeat_ngram_size", p.no_repeat_ngram_size, 0, p.loop_window);
    check_range("text_layout", p.text_layout, QT_TEXT_LAYOUT_AUTO, QT_TEXT_LAYOUT_NON_STREAMING);
    check_range("first_chunk_frames", p.first_chunk_frames, 0, 64);
}

void check_reference(const qt_tts_params& p, int hidden, int codes, int kv_size) {
    if (p.ref_audio_24k || p.ref_n_samples != 0)
        check_audio(p.ref_audio_24k, p.ref_n_samples, "ref_audio_24k", "ref_n_samples");
    if (p.ref_audio_24k && (p.ref_spk_emb || p.ref_codes))
        fail_params("ref_audio_24k: excludes ref_spk_emb and ref_codes; give one or the other");
    if (p.ref_spk_emb) {
        if (p.ref_spk_dim != hidden)
            fail_params(strf("ref_spk_dim: is %d; this model's x-vectors have %d values",
                             p.ref_spk_dim, hidden));
        for (int i = 0; i < hidden; ++i)
            if (!std::isfinite(p.ref_spk_emb[i]))
                fail_params(strf("ref_spk_emb: value %d is not finite", i));
    } else if (p.ref_spk_dim != 0) {
        fail_params("ref_spk_emb: is NULL though ref_spk_dim is not 0");
    }
    if (p.ref_codes) {
        if (!p.ref_spk_emb) fail_params("ref_codes: need ref_spk_emb beside them");
        if (!given(p.ref_text)) fail_params("ref_codes: need ref_text, what the reference says");
        check_range("ref_T", p.ref_T, 1, kv_size);
        for (int i = 0; i < kCodebooks * p.ref_T; ++i)
            if (p.ref_codes[i] < 0 || p.ref_codes[i] >= codes)
                fail_params(strf("ref_codes: code %d of frame %d is %d; 0 to %d is possible",
                                 i / p.ref_T, i % p.ref_T, static_cast<int>(p.ref_codes[i]),
                                 codes - 1));
    } else if (p.ref_T != 0) {
        fail_params("ref_codes: is NULL though ref_T is not 0");
    }
    if (given(p.ref_text) && !p.ref_audio_24k && !p.ref_codes)
        fail_params("ref_text: needs ref_audio_24k or ref_codes, whose words it holds");
}

void check_onset(const qt_tts_params& p, int codes) {
    check_range("onset_silence_id_count", p.onset_silence_id_count, 0, kMaxOnsetBans);
    check_range("onset_silence_ban_frames", p.onset_silence_ban_frames, 0, 64);
    if (p.onset_silence_id_count == 0 || p.onset_silence_ban_frames == 0) return;
    if (!p.onset_silence_ids)
        fail_params("onset_silence_ids: is NULL though onset_silence_id_count is not 0");
    for (int i = 0; i < p.onset_silence_id_count; ++i)
        check_range("onset_silence_ids", p.onset_silence_ids[i], 0, codes - 1);
    const bool in_context = p.ref_codes || given(p.ref_text);
    if (in_context || (!p.ref_spk_emb && !p.ref_audio_24k))
        fail_params("onset_silence_ids: only for a voice by x-vector (reference without ref_text)");
}

[[noreturn]] void wrong_mode(const std::string& message) {
    throw Error(Status::mode_invalid, message);
}

void check_mode(const TalkerInfo& info, const qt_tts_params& p) {
    const std::string kind = std::string(" (this model is ") + model_kind_name(info.kind) + ")";
    const bool reference = p.ref_audio_24k || p.ref_spk_emb || p.ref_codes || given(p.ref_text);
    if (info.kind != ModelKind::custom_voice && given(p.speaker))
        wrong_mode("speaker: only custom_voice models have speakers" + kind);
    if (info.kind == ModelKind::custom_voice && !given(p.speaker)) {
        std::string names;
        for (const SpeakerInfo& s : info.speakers) names += (names.empty() ? "" : ", ") + s.name;
        wrong_mode("speaker: is required for a custom_voice model; there are " + names);
    }
    if (info.kind == ModelKind::base && given(p.instruct))
        wrong_mode("instruct: base models take no instructions" + kind);
    if (info.kind == ModelKind::voice_design && !given(p.instruct))
        wrong_mode("instruct: is required for a voice_design model: it describes the voice");
    if (info.kind != ModelKind::base && reference)
        wrong_mode("ref_audio_24k, ref_spk_emb, ref_codes: only base models clone voices" + kind);
}

}  // namespace

EngineOptions check_init(const qt_init_params& p) {
    if (!given(p.talker_path)) fail_params("talker_path: is required, a Qwen3-TTS talker GGUF");
    if (!given(p.codec_path)) fail_params("codec_path: is required, the 12 Hz codec GGUF");
    check_range("max_batch", p.max_batch, 1, 64);
    check_range("talker_kv_size", p.talker_kv_size, 64, 32768);
    check_range("n_threads", p.n_threads, 0, 256);
    check_range("precision", p.precision, QT_PRECISION_EXACT, QT_PRECISION_FAST);
    check_range("stream_frames_max", p.stream_frames_max, 0, 64);
    if (!std::isfinite(p.codec_chunk_sec) || p.codec_chunk_sec < 0)
        fail_params("codec_chunk_sec: is not a finite number >= 0");
    EngineOptions o;
    o.talker_path = p.talker_path;
    o.codec_path = p.codec_path;
    o.max_batch = p.max_batch;
    o.kv_size = p.talker_kv_size;
    o.n_threads = p.n_threads;
    if (p.stream_frames_max > 0) o.stream_frames_max = p.stream_frames_max;
    if (p.precision == QT_PRECISION_FAST) make_fast(o);
    return o;
}

void check_audio(const float* audio, int n_samples, const char* field, const char* length_field) {
    if (!audio) fail_params(std::string(field) + ": is NULL");
    if (n_samples < kMinReference || n_samples > kMaxReference)
        fail_params(strf("%s: is %d; %d to %d samples (80 ms to 120 s at 24 kHz) are possible",
                         length_field, n_samples, kMinReference, kMaxReference));
    for (int i = 0; i < n_samples; ++i)
        if (!std::isfinite(audio[i])) fail_params(strf("%s: sample %d is not finite", field, i));
}

void check_tts(const TalkerInfo& info, int hidden, const EngineOptions& options,
               const qt_tts_params& p) {
    if (!p.text) fail_params("text: is NULL");
    bool blank = false;
    check_text("text", p.text, &blank);
    if (blank) fail_params("text: is blank; there is nothing to say");
    if (p.lang) check_text("lang", p.lang);
    if (p.instruct) check_text("instruct", p.instruct);
    if (p.speaker) check_text("speaker", p.speaker);
    if (p.ref_text) check_text("ref_text", p.ref_text);
    check_range("max_new_tokens", p.max_new_tokens, 1, options.kv_size);
    check_sampling("", p.temperature, p.top_k, p.top_p);
    check_sampling("subtalker_", p.subtalker_temperature, p.subtalker_top_k, p.subtalker_top_p);
    if (!std::isfinite(p.repetition_penalty) || p.repetition_penalty <= 0)
        fail_params(strf("repetition_penalty: is %g; a finite number > 0 is expected",
                         static_cast<double>(p.repetition_penalty)));
    check_guards(p);
    check_mode(info, p);
    check_reference(p, hidden, info.codes, options.kv_size);
    check_onset(p, info.codes);
    if (!is_auto(p.lang)) info.language(p.lang);
    if (given(p.speaker)) info.speaker(p.speaker);
}

}  // namespace qt
