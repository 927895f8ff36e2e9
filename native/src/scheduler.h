// Who computes when: one worker thread owns the engine and its frame loop.
//
// Requests join and leave at frame boundaries; up to max_batch of them share each reading of the
// weights, the others wait, first come first served. What one request gets does not depend on its
// neighbours. Callbacks run on the worker.
//
// Whatever is not a frame comes in steps of about a frame's time, one between two frames: prompts,
// reference frames, and tasks that breathe. So nobody who joins freezes those who speak.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine.h"
#include "lane.h"
#include "request.h"

namespace qt {

class Scheduler {
  public:
    explicit Scheduler(Engine& engine);
    ~Scheduler();  // cancels what runs or waits, and waits until every caller has left

    // Returns when the request is over; throws Error when it failed or was cancelled.
    void run(Request& request);
    // The same for something else that needs the engine. The task calls `breathe` between its
    // steps; the others' frames are computed there. `cancel` is asked while it waits for its turn,
    // before it begins and at every breath, which throws then; it may be empty.
    using Task = std::function<void(const Breath& breathe)>;
    void run_task(const Task& task, const std::function<bool()>& cancel);

  private:
    struct Job {
        Request* request = nullptr;  // or
        const Task* task = nullptr;
        std::function<bool()> cancel;
        Lane* lane = nullptr;
        bool over = false;
        std::exception_ptr error;
    };

    void submit(Job& job);
    void work();
    Job* next_job(bool tasks_too);
    bool admit(bool tasks_too);
    void run_now(Job& task);
    void breathe(Job& task);
    void turn(bool tasks_too);
    void poll_waiting();
    void round();
    void prepare(const std::vector<Job*>& jobs, bool others_speak);
    void prefill(const std::vector<Job*>& jobs, bool others_speak);
    bool ask_flow(Job& job);
    void frame(std::vector<Job*>& jobs);
    void predict(const std::vector<Job*>& jobs);
    void deliver(std::vector<Job*>& jobs);
    bool hand_out(Job& job);
    void advance(const std::vector<Job*>& jobs);
    void keep_active(std::vector<Job*>& jobs) const;
    template <typename F>
    bool guarded(Job& job, const F& step);
    void complete(Job& job, std::exception_ptr error);
    void cancel_everything();

    Engine& engine_;
    std::vector<std::unique_ptr<Lane>> lanes_;
    std::vector<Job*> active_;  // the worker's own
    bool all_wait_ = false;     // every active request said QT_FLOW_WAIT

    std::mutex lock_;
    std::condition_variable wake_;  // the worker: a new job, or stop
    std::condition_variable done_;  // callers: some job is over; the destructor: a caller left
    std::deque<Job*> queue_;
    int callers_ = 0;
    bool stop_ = false;

    CodecDecoder::Workspace background_work_;
    std::vector<CacheRow> rows_;
    std::vector<float> inputs_;  // [rows, hidden]
    std::vector<float> logits_;  // [lanes, n_logits]
    std::thread worker_;
};

}  // namespace qt
