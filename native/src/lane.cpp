#include "lane.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "status.h"

namespace qt {
namespace {

// Reference frames per step. Most only pass the codec's transformer; the last ones pass its
// convolutions too, where two take about as long as one frame of speech.
constexpr int kUnheardFrames = 32;
constexpr int kHeardFrames = 2;
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
    looped_ = ended_ = false;
    primed_ = 0;
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

std::span<const float> Lane::next_prompt_rows(int n, std::vector<CacheRow>& rows) {
    for (int i = 0; i < n; ++i) rows.push_back({&cache_, position_ + i});
    const auto width = static_cast<size_t>(engine_.talker.hidden());
    return std::span<const float>(prompt_.rows)
        .subspan(static_cast<size_t>(position_) * width, static_cast<size_t>(n) * width);
}

void Lane::take_prompt_output(int n, const float* hidden, float ms) {
    position_ += n;
    request_->result.prefill_ms += ms;
    if (rows_left() > 0) return;
    const Clock::time_point start = Clock::now();
    engine_.voices.keep(voice_rows_, request_->plan.voice_rows(), cache_);
    std::copy_n(hidden + static_cast<ptrdiff_t>(n - 1) * std::ssize(hidden_), hidden_.size(),
                hidden_.begin());
    engine_.talker.logits(engine_.pool, hidden_.data(), 1, logits_.data());
    phase_ = request_->plan.in_context() ? Phase::prime : Phase::frames;
    request_->result.prefill_ms += milliseconds(Clock::now() - start);
}

void Lane::prime_step(bool others_speak) {
    const Clock::time_point start = Clock::now();
    const PromptPlan& plan = request_->plan;
    if (const CodecState* known = primed_ == 0 ? engine_.voices.codec(plan.ref_codes) : nullptr) {
        codec_ = *known;
        primed_ = plan.ref_frames;
    } else {
        const int unheard = engine_.decoder.unheard_frames(plan.ref_frames) - primed_;
        const int heard = others_speak ? kHeardFrames : CodecDecoder::kMaxStep;
        const int step = unheard > 0 ? std::min(unheard, kUnheardFrames) : heard;
        const int end = std::min(plan.ref_frames, primed_ + step);
        engine_.decoder.prime(engine_.pool, codec_, engine_.decoder_work, plan.ref_codes.data(),
                              plan.ref_frames, primed_, end);
        primed_ = end;
        if (primed_ == plan.ref_frames) engine_.voices.keep_codec(plan.ref_codes, codec_);
    }
    if (primed_ == plan.ref_frames) phase_ = Phase::frames;
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
        end(QT_FINISH_STOP);
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

void Lane::end_frame() {
    waiting_.insert(waiting_.end(), frame_.begin(), frame_.end());
    request_->codes.insert(request_->codes.end(), frame_.begin(), frame_.end());
    ++frame_index_;
    request_->result.n_frames = frame_index_;
    if (looped_)
        end(QT_FINISH_LOOP);
    else if (frame_index_ == request_->max_frames)
        end(QT_FINISH_LENGTH);
}

bool Lane::due() const {
    const int frames = static_cast<int>(waiting_.size()) / kCodebooks;
    return frames > 0 && (ended_ || frames >= chunk_frames_);
}

// Somebody waits for the first chunk, and nothing comes after the last: all cores decode it.
// The others are decoded while the next frames are made.
bool Lane::at_once() const {
    const int frames = static_cast<int>(waiting_.size()) / kCodebooks;
    return ended_ || (request_->on_chunk && frames == frame_index_);
}

void Lane::take_chunk() {
    chunk_codes_.swap(waiting_);
    waiting_.clear();
    chunk_frames_ = std::min(2 * chunk_frames_, request_->chunk_frames);
    audio_.resize(chunk_codes_.size() / kCodebooks *
                  static_cast<size_t>(engine_.decoder.samples_per_frame()));
    chunk_.store(Chunk::decoding);
}

void Lane::decode_chunk(CodecDecoder::Workspace& work) noexcept {
    const Clock::time_point start = Clock::now();
    try {
        engine_.decoder.decode(engine_.pool, codec_, work, chunk_codes_.data(),
                               static_cast<int>(chunk_codes_.size()) / kCodebooks, audio_.data());
    } catch (...) {
        chunk_error_ = std::current_exception();
    }
    chunk_ms_ = milliseconds(Clock::now() - start);
    chunk_.store(Chunk::ready);
}

void Lane::collect() {
    if (chunk_.load() == Chunk::ready) hand_out();
    if (ended_ && waiting_.empty() && chunk_.load() == Chunk::none) phase_ = Phase::finished;
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

void Lane::end(int reason) {
    request_->result.finish_reason = reason;
    ended_ = true;
}

void Lane::release() {
    if (chunk_.load() == Chunk::decoding) engine_.pool.finish_background();
    chunk_.store(Chunk::none);
    chunk_error_ = nullptr;
    request_ = nullptr;
    phase_ = Phase::idle;
}

}  // namespace qt
