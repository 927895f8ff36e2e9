#include "scheduler.h"

#include <algorithm>

#include "status.h"

namespace qt {
namespace {

// How long the worker sleeps when every request waits for its listener (qt.h promises 10 ms), and
// how often it looks at the `cancel` of requests that wait for a place meanwhile.
constexpr std::chrono::milliseconds kFlowPause{5};

// Prompt rows per step. On two slow cores 16 rows of a 0.6B prompt take about a frame's time, and
// still read the weights only once per 16 rows; without listeners more rows use the cores better,
// until they do not fit the caches any more.
constexpr int kPrefillRows = 16;
constexpr int kPrefillRowsAlone = 64;

// The next step of `rows` rows in steps of at most `most`, all about equal: a last step of three
// rows would read all the weights for them.
int even_step(int rows, int most) {
    const int steps = (rows + most - 1) / most;
    return (rows + steps - 1) / steps;
}

constexpr const char* kCancelled = "cancel returned true";
constexpr const char* kFreed = "the context is being freed";

std::exception_ptr cancelled(const char* why) {
    return std::make_exception_ptr(Error(Status::cancelled, why));
}

}  // namespace

Scheduler::Scheduler(Engine& engine) : engine_(engine), background_work_(engine.decoder) {
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

void Scheduler::run_task(const Task& task, const std::function<bool()>& cancel) {
    Job job;
    job.task = &task;
    job.cancel = cancel;
    submit(job);
}

void Scheduler::submit(Job& job) {
    std::unique_lock<std::mutex> hold(lock_);
    if (stop_) throw Error(Status::cancelled, kFreed);
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
        turn(true);
    }
    cancel_everything();
}

// What is to do between two looks at the queue: newcomers, then one frame of everybody.
void Scheduler::turn(bool tasks_too) {
    try {
        while (admit(tasks_too)) {
        }
        poll_waiting();
        if (!active_.empty()) round();
    } catch (...) {
        // A step that lanes take together failed (memory ran out): it is everybody's failure.
        const std::exception_ptr error = std::current_exception();
        for (Job* job : std::vector<Job*>(active_)) complete(*job, error);
    }
}

// Takes the first waiting job off the queue if there is room for it.
Scheduler::Job* Scheduler::next_job(bool tasks_too) {
    const std::lock_guard<std::mutex> hold(lock_);
    if (queue_.empty()) return nullptr;
    Job* job = queue_.front();
    if (job->request) {
        const auto idle = std::find_if(lanes_.begin(), lanes_.end(), [](const auto& lane) {
            return lane->phase() == Lane::Phase::idle;
        });
        if (idle == lanes_.end()) return nullptr;
        job->lane = idle->get();
    } else if (!tasks_too) {
        return nullptr;
    }
    queue_.pop_front();
    return job;
}

bool Scheduler::admit(bool tasks_too) {
    Job* job = next_job(tasks_too);
    if (!job) return false;
    if (job->task) {
        run_now(*job);
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

void Scheduler::run_now(Job& task) {
    std::exception_ptr error;
    try {
        if (task.cancel && task.cancel()) throw Error(Status::cancelled, kCancelled);
        (*task.task)([this, &task] { breathe(task); });
    } catch (...) {
        error = std::current_exception();
    }
    complete(task, error);
}

// Within a task: the others' turn. Tasks behind it wait until it is over.
void Scheduler::breathe(Job& task) {
    if (task.cancel && task.cancel()) throw Error(Status::cancelled, kCancelled);
    {
        const std::lock_guard<std::mutex> hold(lock_);
        if (stop_) throw Error(Status::cancelled, kFreed);
    }
    turn(false);
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

// One frame of every request that is ready; one step of the preparation of the others.
void Scheduler::round() {
    std::vector<Job*> ready;
    std::vector<Job*> preparing;
    for (Job* job : std::vector<Job*>(active_)) {
        const bool alive = guarded(*job, [&] {
            if (job->request->wants_cancel()) throw Error(Status::cancelled, kCancelled);
            job->lane->collect();
        });
        if (!alive) continue;
        if (job->lane->phase() != Lane::Phase::frames)
            preparing.push_back(job);
        else if (ask_flow(*job))
            ready.push_back(job);
    }
    all_wait_ = preparing.empty() && ready.empty() && !active_.empty();
    if (!preparing.empty()) prepare(preparing, !ready.empty());
    if (!ready.empty()) frame(ready);
}

// The first who came is the first to speak; prompts behind it fill the step up.
void Scheduler::prepare(const std::vector<Job*>& jobs, bool others_speak) {
    Job& first = *jobs.front();
    if (first.lane->phase() == Lane::Phase::prime)
        guarded(first, [&] { first.lane->prime_step(others_speak); });
    else
        prefill(jobs, others_speak);
}

void Scheduler::prefill(const std::vector<Job*>& jobs, bool others_speak) {
    const Clock::time_point start = Clock::now();
    struct Part {
        Job* job;
        int rows;
    };
    std::vector<Part> parts;
    int left = 0;
    for (const Job* job : jobs)
        if (job->lane->phase() == Lane::Phase::prefill) left += job->lane->rows_left();
    left = even_step(left, others_speak ? kPrefillRows : kPrefillRowsAlone);
    rows_.clear();
    inputs_.clear();
    for (Job* job : jobs) {
        if (job->lane->phase() != Lane::Phase::prefill) continue;
        const int n = std::min(left, job->lane->rows_left());
        if (n == 0) break;
        const std::span<const float> rows = job->lane->next_prompt_rows(n, rows_);
        inputs_.insert(inputs_.end(), rows.begin(), rows.end());
        parts.push_back({job, n});
        left -= n;
    }
    engine_.talker.forward(engine_.pool, inputs_.data(), rows_);
    const float ms = milliseconds(Clock::now() - start);
    const float* output = inputs_.data();
    for (const Part& part : parts) {
        guarded(*part.job, [&] { part.job->lane->take_prompt_output(part.rows, output, ms); });
        output += static_cast<ptrdiff_t>(part.rows) * engine_.talker.hidden();
    }
}

void Scheduler::frame(std::vector<Job*>& jobs) {
    // Code 0, or the end.
    std::vector<Job*> ended;
    std::erase_if(jobs, [&](Job* job) {
        bool goes_on = false;
        const bool alive = guarded(*job, [&] { goes_on = job->lane->choose_code0(); });
        if (alive && !goes_on) ended.push_back(job);
        return !alive || !goes_on;
    });
    deliver(ended);
    if (jobs.empty()) return;
    predict(jobs);
    keep_active(jobs);
    deliver(jobs);
    if (!jobs.empty()) advance(jobs);
}

// Codes 1..15, together.
void Scheduler::predict(const std::vector<Job*>& jobs) {
    const Clock::time_point start = Clock::now();
    std::vector<CodePredictor::Frame> frames;
    for (const Job* job : jobs) frames.push_back(job->lane->predictor_frame());
    engine_.predictor.run(engine_.pool, frames);
    const float ms = milliseconds(Clock::now() - start);
    for (size_t i = 0; i < frames.size(); ++i) {
        Job& job = *jobs[i];
        job.request->result.predictor_ms += ms;
        guarded(job, [&] {
            if (frames[i].failed)
                throw Error(Status::generate_failed,
                            "the code predictor's logits are not numbers: a damaged model file?");
            job.lane->end_frame();
        });
    }
}

// Sound. `jobs` are left with those that go on. Chunks that nobody waits for are decoded while the
// next frames are made, which wait for memory most of the time: all lanes' in one task.
void Scheduler::deliver(std::vector<Job*>& jobs) {
    std::vector<Lane*> later;
    for (Job* job : std::vector<Job*>(jobs)) {
        Lane& lane = *job->lane;
        if (lane.decoding() && (lane.due() || lane.ended())) engine_.pool.finish_background();
        if (!hand_out(*job) || !lane.due()) continue;
        const bool at_once = lane.at_once();
        lane.take_chunk();
        if (at_once) {
            lane.decode_chunk(engine_.decoder_work);
            hand_out(*job);
        } else {
            later.push_back(&lane);
        }
    }
    if (!later.empty())
        engine_.pool.start_background([this, later] {
            for (Lane* lane : later) lane->decode_chunk(background_work_);
        });
    keep_active(jobs);
}

// The chunk that is decoded, if one is. False when the request is over.
bool Scheduler::hand_out(Job& job) {
    if (!guarded(job, [&] { job.lane->collect(); })) return false;
    if (!job.lane->finished()) return true;
    complete(job, nullptr);
    return false;
}

// Drops those that are over; they may be gone.
void Scheduler::keep_active(std::vector<Job*>& jobs) const {
    std::erase_if(jobs, [this](Job* job) {
        return std::find(active_.begin(), active_.end(), job) == active_.end();
    });
}

// The next hidden states and logits, together.
void Scheduler::advance(const std::vector<Job*>& jobs) {
    const Clock::time_point start = Clock::now();
    const auto width = static_cast<size_t>(engine_.talker.hidden());
    const auto n_logits = static_cast<size_t>(engine_.talker.n_logits());
    inputs_.resize(jobs.size() * width);
    logits_.resize(jobs.size() * n_logits);
    rows_.clear();
    for (size_t i = 0; i < jobs.size(); ++i) {
        jobs[i]->lane->next_input(inputs_.data() + i * width);
        rows_.push_back(jobs[i]->lane->cache_row());
    }
    engine_.talker.forward(engine_.pool, inputs_.data(), rows_);
    engine_.talker.logits(engine_.pool, inputs_.data(), static_cast<int>(jobs.size()),
                          logits_.data());
    const float talker_ms = milliseconds(Clock::now() - start);
    for (size_t i = 0; i < jobs.size(); ++i) {
        jobs[i]->lane->take_output(inputs_.data() + i * width, logits_.data() + i * n_logits);
        jobs[i]->request->result.talker_ms += talker_ms;
    }
}

void Scheduler::cancel_everything() {
    for (Job* job : std::vector<Job*>(active_)) complete(*job, cancelled(kFreed));
    std::deque<Job*> waiting;
    {
        const std::lock_guard<std::mutex> hold(lock_);
        waiting.swap(queue_);
    }
    for (Job* job : waiting) complete(*job, cancelled(kFreed));
}

}  // namespace qt
