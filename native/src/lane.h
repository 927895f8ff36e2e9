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
    // Some rows of the prompt; after the last one the logits of frame 0 exist.
    void prefill_step();
    // The reference frames through the codec, so that it sounds on from there.
    void prime();

    // The steps of one frame, in this order.
    bool choose_code0();  // false: the utterance ended instead
    std::span<int32_t> codes() { return frame_; }
    CodePredictor::Frame predictor_frame();
    void deliver();  // has decoded what is due; may finish the lane
    void collect();  // hands out the chunk that was decoded meanwhile, if it is ready
    bool finished() const { return phase_ == Phase::finished; }
    void next_input(float* row);  // talker input after this frame
    CacheRow cache_row();
    void take_output(const float* hidden, const float* logits);

    void finish(int reason);
    void release();  // back to idle

  private:
    // A chunk on its way to the listener. `decoding` belongs to whoever runs decode_chunk().
    enum class Chunk { none, decoding, ready };

    void emit(int frames, bool at_once);
    void decode_chunk() noexcept;
    void hand_out();

    Engine& engine_;
    KvCache cache_;
    CodecState codec_;
    Phase phase_ = Phase::idle;
    Request* request_ = nullptr;
    Prompt prompt_;
    std::vector<float> voice_rows_;  // the prompt's beginning (prefill overwrites the rows)
    int position_ = 0;               // rows in the cache
    int frame_index_ = 0;
    int chunk_frames_ = 0;  // of the chunk that is being collected
    LoopGuard guard_;
    bool looped_ = false;
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
