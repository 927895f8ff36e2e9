// The airlock: every function of qt.h checks its arguments, calls the engine, and turns exceptions
// into statuses. Nothing is thrown across this border.

#include "qt.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <new>
#include <string>

#include "kernels.h"
#include "log.h"
#include "machine.h"
#include "params.h"
#include "scheduler.h"
#include "status.h"
#include "threads.h"

struct qt_context {
    explicit qt_context(const qt::EngineOptions& options) : engine(options), scheduler(engine) {}
    qt::Engine engine;
    qt::Scheduler scheduler;
};

namespace {

using qt::Error;
using qt::Status;

constexpr int kMostThreads = 256;

thread_local std::string last_error;
thread_local qt_result last_result = {};

// Runs f and returns its status; the message is kept for qt_last_error.
template <typename F>
int guarded(const F& f) noexcept {
    try {
        last_error.clear();
        f();
        return QT_STATUS_OK;
    } catch (const Error& e) {
        last_error = e.what();
        return static_cast<int>(e.status());
    } catch (const std::bad_alloc&) {
        last_error = "memory ran out";
        return QT_STATUS_OOM;
    } catch (const std::exception& e) {
        last_error = std::string("the engine failed: ") + e.what();
        return QT_STATUS_GENERATE_FAILED;
    } catch (...) {
        last_error = "the engine failed";
        return QT_STATUS_GENERATE_FAILED;
    }
}

qt_context& checked(qt_context* ctx) {
    if (!ctx) qt::fail_params("ctx: is NULL");
    return *ctx;
}

// A copy of n values that the caller frees through us.
template <typename T>
T* handed_out(const T* values, size_t n) {
    T* copy = new T[n];
    std::memcpy(copy, values, n * sizeof(T));
    return copy;
}

template <typename T>
int write_defaults(T* params, int abi_version, T defaults, size_t bytes) {
    return guarded([&] {
        if (!params) qt::fail_params("params: is NULL");
        if (bytes == 0)
            qt::fail_params(qt::strf("abi_version: is %d; this library takes %d to %d", abi_version,
                                     QT_ABI_VERSION_MIN, QT_ABI_VERSION));
        defaults.abi_version = abi_version;
        std::memcpy(static_cast<void*>(params), &defaults, bytes);
    });
}

// Runs on the worker, in steps between the frames of others.
qt::VoiceInput encode_voice(qt_context& ctx, const float* audio, int n_samples, bool with_codes,
                            const std::function<bool()>& cancel) {
    if (ctx.engine.info.kind != qt::ModelKind::base)
        throw Error(Status::mode_invalid,
                    std::string("audio_24k: only base models clone voices (this model is ") +
                        qt::model_kind_name(ctx.engine.info.kind) + ")");
    qt::VoiceInput voice;
    ctx.scheduler.run_task(
        [&](const qt::Breath& breathe) {
            voice = ctx.engine.encode_voice(audio, n_samples, with_codes, breathe);
        },
        cancel);
    return voice;
}

void synthesize(qt_context& ctx, const qt_tts_params* params, qt_audio* out) {
    const qt::Clock::time_point entered = qt::Clock::now();
    const qt_tts_params p = qt::read_tts_params(params);
    if (!p.on_chunk && !out) qt::fail_params("out: is NULL, and there is no on_chunk either");
    qt::check_tts(ctx.engine.info, ctx.engine.talker.hidden(), ctx.engine.options, p);
    qt::VoiceInput voice = qt::voice_of(p);
    float reference_ms = 0;
    if (p.ref_audio_24k) {
        const bool in_context = p.ref_text && *p.ref_text;
        voice = encode_voice(ctx, p.ref_audio_24k, p.ref_n_samples, in_context,
                             [&p] { return p.cancel && p.cancel(p.cancel_user_data); });
        reference_ms = qt::milliseconds(qt::Clock::now() - entered);
    }
    qt::Request request = qt::make_request(ctx.engine, p, voice);
    request.entered = entered;
    request.result.reference_ms = reference_ms;
    try {
        ctx.scheduler.run(request);
    } catch (...) {
        last_result = request.result;
        throw;
    }
    last_result = request.result;
    last_result.total_ms = qt::milliseconds(qt::Clock::now() - entered);
    if (!out || request.samples.empty()) return;
    out->samples = handed_out(request.samples.data(), request.samples.size());
    out->n_samples = static_cast<int>(request.samples.size());
    out->sample_rate = QT_SAMPLE_RATE;
    out->channels = 1;
}

std::string build_info() {
    std::string built = "\"scalar\"";
#if defined(__x86_64__)
    built += ", \"avx2\", \"avx512\"";
#elif defined(__aarch64__)
    built += ", \"neon\"";
#endif
    return qt::strf(
        "{\"name\": \"phonate\", \"version\": \"%s\", \"abi_min\": %d, \"abi_max\": %d, \"isa\": "
        "\"%s\", "
        "\"isa_built\": [%s], \"threads\": %d, \"formats\": [\"F32\", \"F16\", \"BF16\", \"Q8_0\", "
        "\"Q5_0\", \"Q4_0\", \"Q4_K\", \"Q5_K\", \"Q6_K\"]}",
        QT_VERSION, QT_ABI_VERSION_MIN, QT_ABI_VERSION, qt::kernels().name, built.c_str(),
        qt::usable_cores());
}

}  // namespace

extern "C" {

const char* qt_version(void) {
    return QT_VERSION;
}

const char* qt_build_info(void) {
    static const std::string info = build_info();
    return info.c_str();
}

const char* qt_last_error(void) {
    return last_error.c_str();
}

qt_result qt_last_result(void) {
    return last_result;
}

void qt_log_set(qt_log_cb callback, void* user_data) {
    guarded([&] { qt::set_log(callback, user_data); });
}

void qt_init_default_params(qt_init_params* params) {
    if (params) *params = qt::default_init_params();
}

int qt_init_default_params_abi(qt_init_params* params, int abi_version) {
    return write_defaults(params, abi_version, qt::default_init_params(),
                          qt::init_params_bytes(abi_version));
}

qt_context* qt_init(const qt_init_params* params) {
    qt_context* ctx = nullptr;
    guarded([&] { ctx = new qt_context(qt::check_init(qt::read_init_params(params))); });
    return ctx;
}

void qt_free(qt_context* ctx) {
    delete ctx;
}

int qt_measure_machine(int n_threads, qt_machine* limits) {
    return guarded([&] {
        if (!limits) qt::fail_params("limits: NULL");
        if (n_threads < 0 || n_threads > kMostThreads)
            qt::fail_params(qt::strf("n_threads is %d, expected 0 to %d", n_threads, kMostThreads));
        const qt::MachineLimits found = qt::measure_machine(n_threads);
        *limits = {found.n_threads, found.read_bytes_s, found.mul_adds_s};
    });
}

int qt_frame_costs(const qt_context* ctx, qt_frame_cost* cost) {
    return guarded([&] {
        if (!ctx || !cost) qt::fail_params("ctx or cost: NULL");
        const qt::FrameCost c = ctx->engine.frame_cost();
        *cost = {c.talker_bytes, c.predictor_bytes, c.codec_bytes, c.codec_mul_adds};
    });
}

int qt_num_codebooks(const qt_context* ctx) {
    return ctx ? qt::kCodebooks : -1;
}

int qt_duration_sec_to_tokens(const qt_context* ctx, float seconds) {
    if (!ctx || !std::isfinite(seconds) || seconds <= 0) return -1;
    const double frames =
        std::ceil(static_cast<double>(seconds) * QT_SAMPLE_RATE / QT_SAMPLES_PER_FRAME);
    return frames > 2147483647.0 ? -1 : static_cast<int>(frames);
}

int qt_n_speakers(const qt_context* ctx) {
    return ctx ? static_cast<int>(ctx->engine.info.speakers.size()) : -1;
}

const char* qt_speaker_name(const qt_context* ctx, int index) {
    if (!ctx || index < 0 || index >= qt_n_speakers(ctx)) return nullptr;
    return ctx->engine.info.speakers[static_cast<size_t>(index)].name.c_str();
}

void qt_tts_default_params(qt_tts_params* params) {
    if (params) *params = qt::default_tts_params();
}

int qt_tts_default_params_abi(qt_tts_params* params, int abi_version) {
    return write_defaults(params, abi_version, qt::default_tts_params(),
                          qt::tts_params_bytes(abi_version));
}

int qt_synthesize(qt_context* ctx, const qt_tts_params* params, qt_audio* out) {
    if (out) *out = {};
    last_result = {};
    const int status = guarded([&] { synthesize(checked(ctx), params, out); });
    last_result.status = status;
    if (status != QT_STATUS_OK)
        last_result.finish_reason =
            status == QT_STATUS_CANCELLED ? QT_FINISH_CANCELLED : QT_FINISH_NONE;
    return status;
}

void qt_audio_free(qt_audio* audio) {
    if (!audio) return;
    delete[] audio->samples;
    *audio = {};
}

int qt_extract_voice_ref(qt_context* ctx, const float* audio_24k, int n_samples,
                         qt_voice_ref* out) {
    if (out) *out = {};
    return guarded([&] {
        qt_context& c = checked(ctx);
        if (!out) qt::fail_params("out: is NULL");
        qt::check_audio(audio_24k, n_samples, "audio_24k", "n_samples");
        const qt::VoiceInput voice = encode_voice(c, audio_24k, n_samples, true, {});
        std::vector<int32_t> by_codebook;
        for (int k = 0; k < qt::kCodebooks; ++k)
            for (int t = 0; t < voice.frames; ++t)
                by_codebook.push_back(voice.codes[static_cast<size_t>(t * qt::kCodebooks + k)]);
        out->ref_spk_emb = handed_out(voice.embedding.data(), voice.embedding.size());
        out->ref_spk_dim = static_cast<int>(voice.embedding.size());
        out->ref_codes = handed_out(by_codebook.data(), by_codebook.size());
        out->ref_T = voice.frames;
        out->num_codebooks = qt::kCodebooks;
    });
}

void qt_voice_ref_free(qt_voice_ref* ref) {
    if (!ref) return;
    delete[] ref->ref_spk_emb;
    delete[] ref->ref_codes;
    *ref = {};
}

}  // extern "C"
