#include "scheduler.h"

#include <algorithm>

#include "status.h"

namespace qt {
namespace {

// How long the worker sleeps when every request waits for its listener (qt.h promises 10 ms), and
// how often it looks at the `cancel` of requests that wait for a place meanwhile.
constexpr std::chrono::milliseconds kFlowPause{5};

constexpr const char* kCancelled = "cancel returned true";

std::exception_ptr cancelled(const char* why) {
    return std::make_exception_ptr(Error(Status::cancelled, why));
}

}  // namespace

Scheduler::Scheduler(Engine& engine) : engine_(engine) {
    for (int i = 0; i < engine.options.max_batch; ++i)
        lanes_.push_back(std::make_unique<Lane>(engine));
    worker_ = std::thread([this] { work(); });
}

Scheduler::~Scheduler() {
    {
        const std::lock_guard<std::mutex> hold(lock_);
        stop_ = true;
    }
    wake_.notify_all();
    worker_.join();
    std::unique_lock<std::mutex> hold(lock_);
    done_.wait(hold, [this] { return callers_ == 0; });
}

void Scheduler::run(Request& request) {
    Job job;
    job.request = &request;
    job.cancel = [&request] { return request.wants_cancel(); };
    submit(job);
}

void Scheduler::run_alone(const std::function<void()>& task, const std::function<bool()>& cancel) {
    Job job;
    job.task = &task;
    job.cancel = cancel;
    submit(job);
}

void Scheduler::submit(Job& job) {
    std::unique_lock<std::mutex> hold(lock_);
    if (stop_) throw Error(Status::cancelled, "the context is being freed");
    ++callers_;
    queue_.push_back(&job);
    wake_.notify_all();
    done_.wait(hold, [&job] { return job.over; });
    if (--callers_ == 0) done_.notify_all();
    if (job.error) std::rethrow_exception(job.error);
}

void Scheduler::work() {
    while (true) {
        {
            std::unique_lock<std::mutex> hold(lock_);
            const auto something = [this] { return stop_ || !queue_.empty(); };
            if (active_.empty())
                wake_.wait(hold, something);
            else if (all_wait_)
                wake_.wait_for(hold, kFlowPause, [this] { return stop_; });
            if (stop_) break;
        }
        try {
            while (admit()) {
            }
            poll_waiting();
            if (!active_.empty()) round();
        } catch (...) {
            // A step that lanes take together failed (memory ran out): it is everybody's failure.
            const std::exception_ptr error = std::current_exception();
            for (Job* job : std::vector<Job*>(active_)) complete(*job, error);
        }
    }
    cancel_everything();
}

// Starts the first waiting job if there is room for it.
bool Scheduler::admit() {
    Job* job = nullptr;
    {
        const std::lock_guard<std::mutex> hold(lock_);
        if (queue_.empty()) return false;
        const auto idle = std::find_if(lanes_.begin(), lanes_.end(), [](const auto& lane) {
            return lane->phase() == Lane::Phase::idle;
        });
        if (queue_.front()->request && idle == lanes_.end()) return false;
        job = queue_.front();
        queue_.pop_front();
        if (job->request) job->lane = idle->get();
    }
    if (job->task) {
        std::exception_ptr error;
        try {
            if (job->cancel && job->cancel()) throw Error(Status::cancelled, kCancelled);
            (*job->task)();
        } catch (...) {
            error = std::current_exception();
        }
        complete(*job, error);
        return true;
    }
    active_.push_back(job);
    Request& request = *job->request;
    request.result.queue_ms = milliseconds(Clock::now() - request.entered);
    guarded(*job, [&] {
        if (request.wants_cancel()) throw Error(Status::cancelled, kCancelled);
        job->lane->begin(request);
    });
    return true;
}

void Scheduler::poll_waiting() {
    std::vector<Job*> waiting;
    {
        const std::lock_guard<std::mutex> hold(lock_);
        waiting.assign(queue_.begin(), queue_.end());
    }
    // Only this thread ends jobs, so the pointers stay good without the lock.
    for (Job* job : waiting) {
        if (!job->cancel || !job->cancel()) continue;
        {
            const std::lock_guard<std::mutex> hold(lock_);
            std::erase(queue_, job);
        }
        complete(*job, cancelled(kCancelled));
    }
}

// Runs a step of one job; an exception ends that job only. False when it ended.
template <typename F>
bool Scheduler::guarded(Job& job, const F& step) {
    try {
        step();
        return true;
    } catch (...) {
        complete(job, std::current_exception());
        return false;
    }
}

void Scheduler::complete(Job& job, std::exception_ptr error) {
    if (job.lane) job.lane->release();
    std::erase(active_, &job);
    const std::lock_guard<std::mutex> hold(lock_);
    job.error = error;
    job.over = true;  // from here on the caller may return and the job be gone
    done_.notify_all();
}

// True when the frame may be computed now; false when it waits or has ended.
bool Scheduler::ask_flow(Job& job) {
    const Request& request = *job.request;
    const int answer = request.flow ? request.flow(request.flow_user_data) : QT_FLOW_GO;
    if (answer == QT_FLOW_GO) return true;
    if (answer != QT_FLOW_WAIT) complete(job, cancelled("flow said so"));
    return false;
}

// One frame of every request that is ready; one piece of the preparation of the others.
void Scheduler::round() {
    std::vector<Job*> ready;
    bool worked = false;
    for (Job* job : std::vector<Job*>(active_)) {
        Lane& lane = *job->lane;
        const bool alive = guarded(*job, [&] {
            if (job->request->wants_cancel()) throw Error(Status::cancelled, kCancelled);
            lane.collect();
        });
        if (!alive) continue;
        if (lane.phase() == Lane::Phase::prefill || lane.phase() == Lane::Phase::prime) {
            worked = true;
            guarded(*job, [&] {
                lane.phase() == Lane::Phase::prefill ? lane.prefill_step() : lane.prime();
            });
        } else if (ask_flow(*job)) {
            ready.push_back(job);
        }
    }
    all_wait_ = !worked && ready.empty() && !active_.empty();
    if (!ready.empty()) frame(ready);
}

void Scheduler::frame(std::vector<Job*>& jobs) {
    // Code 0, or the end.
    std::erase_if(jobs, [&](Job* job) {
        bool goes_on = false;
        if (!guarded(*job, [&] { goes_on = job->lane->choose_code0(); })) return true;
        if (!goes_on) complete(*job, nullptr);
        return !goes_on;
    });
    if (jobs.empty()) return;

    // Codes 1..15, together.
    Clock::time_point start = Clock::now();
    std::vector<CodePredictor::Frame> frames;
    for (const Job* job : jobs) frames.push_back(job->lane->predictor_frame());
    engine_.predictor.run(engine_.pool, frames);
    const float predictor_ms = milliseconds(Clock::now() - start);

    // Sound.
    for (size_t i = frames.size(); i-- > 0;) {
        Job& job = *jobs[i];
        job.request->result.predictor_ms += predictor_ms;
        const bool alive = guarded(job, [&] {
            if (frames[i].failed)
                throw Error(Status::generate_failed,
                            "the code predictor's logits are not numbers: a damaged model file?");
            job.lane->deliver();
        });
        const bool finished = alive && job.lane->finished();
        if (finished) complete(job, nullptr);
        if (!alive || finished) jobs.erase(jobs.begin() + static_cast<ptrdiff_t>(i));
    }
    if (jobs.empty()) return;

    // The next hidden states and logits, together.
    start = Clock::now();
    const auto width = static_cast<size_t>(engine_.talker.hidden());
    const auto n_logits = static_cast<size_t>(engine_.talker.n_logits());
    inputs_.resize(jobs.size() * width);
    logits_.resize(jobs.size() * n_logits);
    std::vector<CacheRow> rows;
    for (size_t i = 0; i < jobs.size(); ++i) {
        jobs[i]->lane->next_input(inputs_.data() + i * width);
        rows.push_back(jobs[i]->lane->cache_row());
    }
    engine_.talker.forward(engine_.pool, inputs_.data(), rows);
    engine_.talker.logits(engine_.pool, inputs_.data(), static_cast<int>(jobs.size()),
                          logits_.data());
    const float talker_ms = milliseconds(Clock::now() - start);
    for (size_t i = 0; i < jobs.size(); ++i) {
        jobs[i]->lane->take_output(inputs_.data() + i * width, logits_.data() + i * n_logits);
        jobs[i]->request->result.talker_ms += talker_ms;
    }
}

void Scheduler::cancel_everything() {
    for (Job* job : std::vector<Job*>(active_))
        complete(*job, cancelled("the context is being freed"));
    std::deque<Job*> waiting;
    {
        const std::lock_guard<std::mutex> hold(lock_);
        waiting.swap(queue_);
    }
    for (Job* job : waiting) complete(*job, cancelled("the context is being freed"));
}

}  // namespace qt
