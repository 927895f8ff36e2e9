#include "threads.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <utility>

#ifdef __linux__
#include <sched.h>
#endif

namespace qt {
namespace {

constexpr int kPieceBits = 24;
constexpr uint64_t kPieceMask = (uint64_t{1} << kPieceBits) - 1;
// Claims run past the last piece by at most one per thread; far below the room left here.
constexpr int kMaxPieces = 1 << 22;
// About 20 to 50 us of waiting before a thread gives its core away: longer than the serial pieces
// between two loops of a frame, shorter than anything a neighbour would notice.
constexpr int kSpins = 1500;

// Who this thread is: a pool's worker, and whether it runs that pool's background task.
struct Current {
    const Pool* pool = nullptr;
    int worker = 0;
    bool in_task = false;
};
thread_local Current current;

uint64_t next_piece(uint64_t ticket) {
    return ticket & kPieceMask;
}
uint64_t pieces_of(uint64_t ticket) {
    return (ticket >> kPieceBits) & kPieceMask;
}

void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

#ifdef __linux__
// The CPU bandwidth limit of this process's cgroup (v2, then v1), in cores; 0 when there is none.
double cgroup_cores() {
    std::ifstream v2("/sys/fs/cgroup/cpu.max");
    std::string quota;
    double period = 0;
    if (v2 >> quota >> period && quota != "max" && period > 0)
        return std::atof(quota.c_str()) / period;
    std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
    std::ifstream v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    double microseconds = 0;
    if (v1_quota >> microseconds && v1_period >> period && microseconds > 0 && period > 0)
        return microseconds / period;
    return 0;
}

// CPUs this process may run on, siblings of one core counted once.
int affinity_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 0;
    std::set<std::pair<int, int>> cores;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &set)) continue;
        const std::string base = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
        int package = -1;
        int core = -1 - cpu;  // unknown: a core of its own
        std::ifstream(base + "physical_package_id") >> package;
        if (std::ifstream in(base + "core_id"); !(in >> core)) core = -1 - cpu;
        cores.insert({package, core});
    }
    return static_cast<int>(cores.size());
}
#endif

}  // namespace

int usable_cores() {
    int cores = static_cast<int>(std::thread::hardware_concurrency());
#ifdef __linux__
    if (const int allowed = affinity_cores(); allowed > 0) cores = allowed;
    if (const double quota = cgroup_cores(); quota > 0)
        cores = std::min(cores, static_cast<int>(quota + 0.5));
#endif
    return std::max(1, cores);
}

Pool::Pool(int n_threads) {
    for (int worker = 1; worker < n_threads; ++worker)
        workers_.emplace_back([this, worker] { work(worker); });
}

Pool::~Pool() {
    finish_background();
    stop_.store(true);
    news_.fetch_add(1);
    news_.notify_all();
    for (auto& thread : workers_) thread.join();
}

int Pool::self() const {
    return current.pool == this ? current.worker : 0;
}

// Tells idle workers that there is something to do. seq_cst throughout: a worker that is about to
// sleep sees the new count, or we see that it is parked.
void Pool::publish() {
    news_.fetch_add(1);
    if (parked_.load() > 0) news_.notify_all();
}

void Pool::run(int pieces, Call call, void* context) {
    if (pieces > kMaxPieces) std::terminate();  // a programming error: pieces are kernel-sized
    const bool in_task = current.pool == this && current.in_task;
    Loops& loops = in_task ? background_ : caller_;
    const int worker = self();
    loops.call = call;
    loops.context = context;
    loops.owner = worker;
    loops.error = nullptr;
    loops.done.store(0, std::memory_order_relaxed);
    const uint64_t generation = (loops.ticket.load(std::memory_order_relaxed) >> 48) + 1;
    loops.ticket.store((generation << 48) | (static_cast<uint64_t>(pieces) << kPieceBits));
    publish();
    while (claim_one(loops, worker)) {
    }
    const auto all = static_cast<uint32_t>(pieces);
    for (int spin = 0; loops.done.load(std::memory_order_acquire) != all; ++spin) {
        if (spin < kSpins)
            relax();
        else if (const uint32_t seen = loops.done.load(std::memory_order_acquire); seen != all)
            loops.done.wait(seen, std::memory_order_acquire);
    }
    if (loops.error) std::rethrow_exception(loops.error);
}

// Takes the next piece of the open job and does it; false when none is left.
bool Pool::claim_one(Loops& loops, int worker) {
    const uint64_t seen = loops.ticket.load(std::memory_order_acquire);
    if (next_piece(seen) >= pieces_of(seen)) return false;
    const uint64_t mine = loops.ticket.fetch_add(1, std::memory_order_acq_rel);
    const uint64_t piece = next_piece(mine);
    const uint64_t pieces = pieces_of(mine);
    if (piece >= pieces) return false;
    // The job cannot end before this piece is done, so call and context are those of `mine`.
    try {
        loops.call(loops.context, static_cast<int>(piece), worker);
    } catch (...) {
        const std::lock_guard<std::mutex> hold(loops.error_lock);
        if (!loops.error) loops.error = std::current_exception();
    }
    // Read before the last piece counts as done: then the next job may open.
    const bool wake = worker != loops.owner;
    // Wake the owner on every piece: it may have gone to sleep on any value.
    loops.done.fetch_add(1, std::memory_order_acq_rel);
    if (wake) loops.done.notify_one();
    return true;
}

void Pool::start_background(std::function<void()> task) {
    finish_background();
    if (workers_.empty()) return task();
    task_ = std::move(task);
    task_state_.store(Task::waiting);
    publish();
}

// Runs the task that waits, if there is one.
bool Pool::take_task(int worker) {
    if (task_state_.load(std::memory_order_relaxed) != Task::waiting) return false;
    Task expected = Task::waiting;
    if (!task_state_.compare_exchange_strong(expected, Task::running)) return false;
    current = {this, worker, true};
    task_();
    task_ = nullptr;
    current = {this, worker, false};
    task_state_.store(Task::none);
    return true;
}

void Pool::finish_background() {
    if (task_state_.load() == Task::none || take_task(0)) return;
    for (int spin = 0; task_state_.load() != Task::none;) {
        const uint32_t news = news_.load();
        if (claim_one(background_, 0)) {
            spin = 0;
            continue;
        }
        if (++spin < kSpins) {
            relax();
            continue;
        }
        // The task is between two loops, or its last pieces are under way: give the core away.
        std::this_thread::yield();
        if (news != news_.load()) spin = 0;
    }
}

void Pool::work(int worker) {
    current = {this, worker, false};
    while (!stop_.load(std::memory_order_relaxed)) {
        const uint32_t seen = news_.load();
        if (take_task(worker) || claim_one(caller_, worker) || claim_one(background_, worker))
            continue;
        for (int spin = 0; spin < kSpins && news_.load(std::memory_order_acquire) == seen; ++spin)
            relax();
        if (news_.load(std::memory_order_acquire) != seen || stop_.load()) continue;
        parked_.fetch_add(1);
        news_.wait(seen);
        parked_.fetch_sub(1);
    }
}

}  // namespace qt
