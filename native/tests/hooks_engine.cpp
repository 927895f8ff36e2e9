// Test hooks: what the engine makes on the way to sound (prompt rows, hidden states, codes).
#include "../src/engine.h"
#include "../src/params.h"
#include "../src/scheduler.h"
#include "hooks.h"

namespace {

struct Loaded {
    explicit Loaded(const qt::EngineOptions& options) : engine(options), scheduler(engine) {}
    qt::Engine engine;
    qt::Scheduler scheduler;
};

qt::Request request_of(const Loaded& l, const qt_tts_params* params) {
    const qt_tts_params p = qt::read_tts_params(params);
    qt::check_tts(l.engine.info, l.engine.talker.hidden(), l.engine.options, p);
    return qt::make_request(l.engine, p, qt::voice_of(p));
}

template <typename T>
void copy_out(const std::vector<T>& from, T* to, int32_t capacity) {
    if (to)
        std::copy_n(from.begin(), std::min<size_t>(from.size(), static_cast<size_t>(capacity)), to);
}

}  // namespace

HOOK void* hook_engine_new(const qt_init_params* params) {
    return hooks::guard(static_cast<void*>(nullptr), [&]() -> void* {
        return new Loaded(qt::check_init(qt::read_init_params(params)));
    });
}

HOOK void hook_engine_free(void* loaded) {
    delete static_cast<Loaded*>(loaded);
}

// out: hidden size, logits per row
HOOK void hook_engine_shape(const void* loaded, int32_t* out) {
    const auto& l = *static_cast<const Loaded*>(loaded);
    out[0] = l.engine.talker.hidden();
    out[1] = l.engine.talker.n_logits();
}

// The prompt of a request: rows [n, hidden], the normed hidden state and the logits of its last
// row. Returns n, -1 on failure.
HOOK int32_t hook_engine_prompt(void* loaded, const qt_tts_params* params, float* rows,
                                int32_t capacity, float* hidden, float* logits) {
    return hooks::guard(-1, [&] {
        auto& l = *static_cast<Loaded*>(loaded);
        const qt::Request request = request_of(l, params);
        int32_t n = 0;
        l.scheduler.run_task(
            [&](const qt::Breath&) {
                qt::Prompt prompt =
                    l.engine.prompts.build(l.engine.pool, request.plan, request.voice);
                copy_out(prompt.rows, rows, capacity);
                qt::KvCache cache = l.engine.talker.new_cache(prompt.n_rows);
                std::vector<qt::CacheRow> at;
                for (int i = 0; i < prompt.n_rows; ++i) at.push_back({&cache, i});
                l.engine.talker.forward(l.engine.pool, prompt.rows.data(), at);
                const auto width = static_cast<size_t>(l.engine.talker.hidden());
                const float* last =
                    prompt.rows.data() + static_cast<size_t>(prompt.n_rows - 1) * width;
                std::copy_n(last, width, hidden);
                l.engine.talker.logits(l.engine.pool, last, 1, logits);
                n = prompt.n_rows;
            },
            {});
        return n;
    });
}

// Runs a request; codes [frames, 16] and audio as far as they fit. Returns frames, -1 on failure.
HOOK int32_t hook_engine_generate(void* loaded, const qt_tts_params* params, int32_t* codes,
                                  int32_t codes_capacity, float* audio, int32_t audio_capacity,
                                  int32_t* finish_reason) {
    return hooks::guard(-1, [&] {
        auto& l = *static_cast<Loaded*>(loaded);
        qt::Request request = request_of(l, params);
        l.scheduler.run(request);
        copy_out(request.codes, codes, codes_capacity);
        copy_out(request.samples, audio, audio_capacity);
        if (finish_reason) *finish_reason = request.result.finish_reason;
        return request.result.n_frames;
    });
}
