// One request under way: its caches, where it stands, and the steps it takes alone. The steps that
// lanes take together (predictor, talker) are the scheduler's.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "engine.h"
#include "loop_guard.h"
#include "request.h"

namespace qt {

class Lane {
  public:
    enum class Phase { idle, prefill, prime, frames, finished };

    explicit Lane(Engine& engine);

    Phase phase() const { return phase_; }
    Request* request() const { return request_; }

    void begin(Request& request);
    // The prompt: rows_left() rows wait for the talker; next_prompt_rows() gives the first n of
    // them, take_prompt_output() what became of them. After the last one the logits of frame 0
    // exist.
    int rows_left() const { return prompt_.n_rows - position_; }
    std::span<const float> next_prompt_rows(int n, std::vector<CacheRow>& rows);
    void take_prompt_output(int n, const float* hidden, float ms);
    // Some of the reference frames through the codec, so that it sounds on from there.
    void prime_step(bool others_speak);

    // The steps of one frame, in this order.
    bool choose_code0();  // false: the utterance ended instead
    CodePredictor::Frame predictor_frame();
    void end_frame();      // it is complete; the utterance may end with it
    bool due() const;      // there is something to decode now
    bool at_once() const;  // and somebody waits for it
    bool ended() const { return ended_; }
    bool decoding() const { return chunk_.load() == Chunk::decoding; }
    void take_chunk();  // what waits is the next chunk; the one before was collected
    void decode_chunk(CodecDecoder::Workspace& work) noexcept;
    void collect();  // hands the chunk out if it is decoded; the lane may be finished then
    bool finished() const { return phase_ == Phase::finished; }
    void next_input(float* row);  // talker input after this frame
    CacheRow cache_row();
    void take_output(const float* hidden, const float* logits);

    void release();  // back to idle

  private:
    // A chunk on its way to the listener. `decoding` belongs to whoever runs decode_chunk().
    enum class Chunk { none, decoding, ready };

    void hand_out();
    void end(int reason);

    Engine& engine_;
    KvCache cache_;
    CodecState codec_;
    Phase phase_ = Phase::idle;
    Request* request_ = nullptr;
    Prompt prompt_;
    std::vector<float> voice_rows_;  // the prompt's beginning (prefill overwrites the rows)
    int position_ = 0;               // rows in the cache
    int primed_ = 0;                 // reference frames the codec has seen
    int frame_index_ = 0;
    int chunk_frames_ = 0;  // of the chunk that is being collected
    LoopGuard guard_;
    bool looped_ = false;
    bool ended_ = false;         // what waits is the last
    std::vector<float> hidden_;  // [hidden]
    std::vector<float> logits_;  // [n_logits]
    std::vector<float> scratch_;
    std::vector<uint64_t> seen_;    // values of code 0 so far, one bit each
    std::vector<int32_t> frame_;    // [16]
    std::vector<int32_t> waiting_;  // [n, 16], not yet decoded
    std::atomic<Chunk> chunk_{Chunk::none};
    std::vector<int32_t> chunk_codes_;  // [n, 16]
    std::vector<float> audio_;
    std::exception_ptr chunk_error_;
    float chunk_ms_ = 0;
};

}  // namespace qt
