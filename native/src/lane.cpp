#include "lane.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "status.h"

namespace qt {
namespace {

// Between two looks at `cancel`: on two slow cores 16 rows of a 0.6B prompt take about a frame's
// time, and still read the weights only once per 16 rows.
constexpr int kPrefillRows = 16;
// The official package hard-wires min_new_tokens = 2: no end before two frames.
constexpr int kFramesBeforeEnd = 2;

}  // namespace

Lane::Lane(Engine& engine)
    : engine_(engine),
      cache_(engine.talker.new_cache(engine.options.kv_size)),
      codec_(engine.decoder.new_state()),
      hidden_(static_cast<size_t>(engine.talker.hidden())),
      logits_(static_cast<size_t>(engine.talker.n_logits())),
      scratch_(logits_.size()),
      seen_((logits_.size() + 63) / 64),
      frame_(kCodebooks) {}

void Lane::begin(Request& request) {
    request_ = &request;
    const Clock::time_point start = Clock::now();
    prompt_ = engine_.prompts.build(engine_.pool, request.plan, request.voice);
    request.result.prefill_ms += milliseconds(Clock::now() - start);
    request.result.n_prompt_rows = prompt_.n_rows;
    codec_ = engine_.decoder.new_state();
    guard_.begin(request.loop);
    looped_ = false;
    position_ = engine_.voices.restore(prompt_.rows, cache_);
    request.result.n_prompt_cached = position_;
    voice_rows_ = std::vector<float>(
        prompt_.rows.begin(),
        prompt_.rows.begin() +
            static_cast<ptrdiff_t>(request.plan.voice_rows()) * engine_.talker.hidden());
    frame_index_ = 0;
    // Without a listener nobody waits for the first chunk: decode in the best size throughout.
    chunk_frames_ = request.on_chunk ? request.first_chunk_frames : request.chunk_frames;
    std::fill(seen_.begin(), seen_.end(), 0);
    waiting_.clear();
    phase_ = Phase::prefill;
}

void Lane::prefill_step() {
    const Clock::time_point start = Clock::now();
    const int width = engine_.talker.hidden();
    const int n = std::min(kPrefillRows, prompt_.n_rows - position_);
    std::vector<CacheRow> rows;
    for (int i = 0; i < n; ++i) rows.push_back({&cache_, position_ + i});
    float* h = prompt_.rows.data() + static_cast<ptrdiff_t>(position_) * width;
    engine_.talker.forward(engine_.pool, h, rows);
    position_ += n;
    if (position_ == prompt_.n_rows) {
        engine_.voices.keep(voice_rows_, request_->plan.voice_rows(), cache_);
        std::copy_n(h + static_cast<ptrdiff_t>(n - 1) * width, width, hidden_.begin());
        engine_.talker.logits(engine_.pool, hidden_.data(), 1, logits_.data());
        phase_ = request_->plan.in_context() ? Phase::prime : Phase::frames;
    }
    request_->result.prefill_ms += milliseconds(Clock::now() - start);
}

void Lane::prime() {
    const Clock::time_point start = Clock::now();
    const PromptPlan& plan = request_->plan;
    if (const CodecState* known = engine_.voices.codec(plan.ref_codes)) {
        codec_ = *known;
    } else {
        engine_.pool.finish_background();  // another request's chunk uses the same buffers
        engine_.decoder.prime(engine_.pool, codec_, engine_.decoder_work, plan.ref_codes.data(),
                              plan.ref_frames);
        engine_.voices.keep_codec(plan.ref_codes, codec_);
    }
    phase_ = Phase::frames;
    request_->result.codec_ms += milliseconds(Clock::now() - start);
}

bool Lane::choose_code0() {
    const float never = -std::numeric_limits<float>::infinity();
    const Request& r = *request_;
    const auto eos = static_cast<size_t>(engine_.talker.eos_logit());
    apply_repetition_penalty(logits_, seen_, r.repetition_penalty);
    if (frame_index_ < kFramesBeforeEnd) logits_[eos] = never;
    if (frame_index_ < r.onset_ban_frames)
        for (const int32_t id : r.onset_bans) logits_[static_cast<size_t>(id)] = never;
    guard_.nudge(logits_);
    const double random = uniform_at(r.seed, static_cast<uint32_t>(frame_index_), 0);
    const int code = choose(logits_, r.rules, random, scratch_);
    if (code < 0)
        throw Error(Status::generate_failed,
                    "the talker's logits are not numbers: a damaged model file?");
    if (static_cast<size_t>(code) == eos) {
        finish(QT_FINISH_STOP);
        return false;
    }
    seen_[static_cast<size_t>(code) / 64] |= uint64_t{1} << (code % 64);
    frame_[0] = code;
    looped_ = guard_.take(code) == LoopGuard::Verdict::stop;
    return true;
}

CodePredictor::Frame Lane::predictor_frame() {
    return {.hidden = hidden_.data(),
            .codes = frame_,
            .rules = request_->predictor_rules,
            .seed = request_->seed,
            .index = static_cast<uint32_t>(frame_index_)};
}

void Lane::deliver() {
    waiting_.insert(waiting_.end(), frame_.begin(), frame_.end());
    request_->codes.insert(request_->codes.end(), frame_.begin(), frame_.end());
    ++frame_index_;
    request_->result.n_frames = frame_index_;
    if (looped_) return finish(QT_FINISH_LOOP);
    if (frame_index_ == request_->max_frames) return finish(QT_FINISH_LENGTH);
    const int frames = static_cast<int>(waiting_.size()) / kCodebooks;
    if (frames < chunk_frames_) return;
    // Somebody waits for the first chunk: all cores decode it. The others are decoded while the
    // next frames are made, which waits for memory most of the time.
    emit(frames, request_->on_chunk && frames == frame_index_);
    chunk_frames_ = std::min(2 * chunk_frames_, request_->chunk_frames);
}

// Decodes what waits, after the chunk before it has been handed out.
void Lane::emit(int frames, bool at_once) {
    if (chunk_.load() == Chunk::decoding) engine_.pool.finish_background();
    collect();
    if (frames == 0) return;
    chunk_codes_.swap(waiting_);
    waiting_.clear();
    audio_.resize(static_cast<size_t>(frames) *
                  static_cast<size_t>(engine_.decoder.samples_per_frame()));
    chunk_.store(Chunk::decoding);
    if (at_once) {
        engine_.pool.finish_background();  // another request's chunk uses the same buffers
        decode_chunk();
    } else {
        engine_.pool.start_background([this] { decode_chunk(); });
    }
    collect();
}

void Lane::decode_chunk() noexcept {
    const Clock::time_point start = Clock::now();
    try {
        engine_.decoder.decode(engine_.pool, codec_, engine_.decoder_work, chunk_codes_.data(),
                               static_cast<int>(chunk_codes_.size()) / kCodebooks, audio_.data());
    } catch (...) {
        chunk_error_ = std::current_exception();
    }
    chunk_ms_ = milliseconds(Clock::now() - start);
    chunk_.store(Chunk::ready);
}

void Lane::collect() {
    if (chunk_.load() == Chunk::ready) hand_out();
}

void Lane::hand_out() {
    chunk_.store(Chunk::none);
    if (chunk_error_) std::rethrow_exception(std::exchange(chunk_error_, nullptr));
    Request& r = *request_;
    r.result.codec_ms += chunk_ms_;
    if (r.result.first_chunk_ms == 0)
        r.result.first_chunk_ms = milliseconds(Clock::now() - r.entered);
    if (!r.on_chunk)
        r.samples.insert(r.samples.end(), audio_.begin(), audio_.end());
    else if (!r.on_chunk(audio_.data(), static_cast<int>(audio_.size()), r.on_chunk_user_data))
        throw Error(Status::cancelled, "on_chunk returned false");
}

// x = c0 + c1 + ... + c15 + the text row of this frame
void Lane::next_input(float* row) {
    const int width = engine_.talker.hidden();
    std::fill_n(row, width, 0.0F);
    engine_.codes.add_frame(frame_, row);
    const int t = frame_index_ - 1;
    const float* text = t < prompt_.n_trailing
                            ? prompt_.trailing.data() + static_cast<ptrdiff_t>(t) * width
                            : engine_.prompts.pad_row().data();
    kernels().add(text, width, row);
}

CacheRow Lane::cache_row() {
    return {&cache_, position_++};
}

void Lane::take_output(const float* hidden, const float* logits) {
    std::copy_n(hidden, hidden_.size(), hidden_.begin());
    std::copy_n(logits, logits_.size(), logits_.begin());
}

void Lane::finish(int reason) {
    emit(static_cast<int>(waiting_.size()) / kCodebooks, true);
    request_->result.finish_reason = reason;
    phase_ = Phase::finished;
}

void Lane::release() {
    if (chunk_.load() == Chunk::decoding) engine_.pool.finish_background();
    chunk_.store(Chunk::none);
    chunk_error_ = nullptr;
    request_ = nullptr;
    phase_ = Phase::idle;
}

}  // namespace qt
