// From checked parameters to a request.

#include "request.h"

#include <algorithm>
#include <random>

#include "log.h"
#include "params.h"
#include "status.h"

namespace qt {
namespace {

uint64_t random_seed() {
    std::random_device device;
    // Positive, so that qt_last_result's seed_used replays it.
    return ((static_cast<uint64_t>(device()) << 32) | device()) >> 1;
}

SampleRules rules_of(bool sample, float temperature, int top_k, float top_p) {
    SampleRules rules;
    rules.sample = sample && temperature > 0;
    rules.temperature = temperature;
    rules.top_k = top_k;
    rules.top_p = top_p;
    return rules;
}

Layout layout_of(const TalkerInfo& info, int asked) {
    if (asked == QT_TEXT_LAYOUT_STREAMING) return Layout::streaming;
    if (asked == QT_TEXT_LAYOUT_NON_STREAMING) return Layout::non_streaming;
    return info.kind == ModelKind::base ? Layout::streaming : Layout::non_streaming;
}

// A position of the context holds a prompt row or a frame.
void check_fits(const Request& r, int rows, int max_new_tokens, int kv_size) {
    const int tokens = r.result.n_text_tokens;
    const int needed = rows + r.plan.trailing();  // one frame beside each text row that trails
    if (needed >= kv_size)
        fail_params(
            strf("text: its %d tokens need %d rows and do not fit talker_kv_size %d; split the "
                 "text or load with a larger talker_kv_size",
                 tokens, needed, kv_size));
    if (rows + int64_t{max_new_tokens} > kv_size)
        fail_params(
            strf("max_new_tokens: %d frames and the %d rows of the prompt (text: %d tokens) do not "
                 "fit talker_kv_size %d; ask for at most %d frames, a shorter text, or a larger "
                 "talker_kv_size",
                 max_new_tokens, rows, tokens, kv_size, kv_size - rows));
}

}  // namespace

VoiceInput voice_of(const qt_tts_params& p) {
    VoiceInput voice;
    if (p.ref_spk_emb) voice.embedding.assign(p.ref_spk_emb, p.ref_spk_emb + p.ref_spk_dim);
    if (p.ref_codes) {
        voice.frames = p.ref_T;
        for (int t = 0; t < p.ref_T; ++t)
            for (int k = 0; k < kCodebooks; ++k)
                voice.codes.push_back(p.ref_codes[k * p.ref_T + t]);
    }
    return voice;
}

Request make_request(const Engine& engine, const qt_tts_params& p, const VoiceInput& voice) {
    PromptInput input;
    input.text = p.text;
    if (given(p.instruct)) {
        if (engine.info.takes_instructions)
            input.instruct = p.instruct;
        else
            log_line(QT_LOG_WARN, "instruct: the 0.6B custom_voice model takes none; ignored");
    }
    if (!is_auto(p.lang)) input.language = &engine.info.language(p.lang);
    if (given(p.speaker)) input.speaker = &engine.info.speaker(p.speaker);
    input.has_voice = !voice.embedding.empty();
    if (voice.frames > 0 && given(p.ref_text)) {
        input.ref_text = p.ref_text;
        input.ref_codes = voice.codes;
        input.ref_frames = voice.frames;
    }
    input.layout = layout_of(engine.info, p.text_layout);

    Request r;
    r.plan = plan_prompt(engine.info, engine.tokenizer, input);
    const int rows = r.plan.rows();
    r.result.n_text_tokens = static_cast<int>(r.plan.text.size());
    r.result.n_prompt_rows = rows;
    check_fits(r, rows, p.max_new_tokens, engine.options.kv_size);
    r.voice = voice.embedding;
    r.max_frames = p.max_new_tokens;
    r.rules = rules_of(p.do_sample, p.temperature, p.top_k, p.top_p);
    r.predictor_rules = rules_of(p.subtalker_do_sample, p.subtalker_temperature, p.subtalker_top_k,
                                 p.subtalker_top_p);
    r.repetition_penalty = p.repetition_penalty;
    r.seed = p.seed == -1 ? random_seed() : static_cast<uint64_t>(p.seed);
    r.result.seed_used = static_cast<int64_t>(r.seed);
    if (p.onset_silence_id_count > 0 && p.onset_silence_ban_frames > 0) {
        r.onset_bans.assign(p.onset_silence_ids, p.onset_silence_ids + p.onset_silence_id_count);
        r.onset_ban_frames = p.onset_silence_ban_frames;
    }
    r.loop = {.ngram = p.no_repeat_ngram_size,
              .max_period = p.loop_max_period,
              .repeats = p.loop_repeats,
              .window = p.loop_window};
    r.first_chunk_frames = p.first_chunk_frames > 0 ? p.first_chunk_frames : 1;
    r.chunk_frames = engine.options.stream_frames_max;
    r.cancel = p.cancel;
    r.cancel_user_data = p.cancel_user_data;
    r.on_chunk = p.on_chunk;
    r.on_chunk_user_data = p.on_chunk_user_data;
    r.flow = p.flow;
    r.flow_user_data = p.flow_user_data;
    return r;
}

}  // namespace qt
