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
    stop_.store(true);
    wake_.fetch_add(1);
    wake_.notify_all();
    for (auto& thread : workers_) thread.join();
}

void Pool::run(int pieces, Call call, void* context) {
    if (pieces > kMaxPieces) std::terminate();  // a programming error: pieces are kernel-sized
    call_ = call;
    context_ = context;
    error_ = nullptr;
    done_.store(0, std::memory_order_relaxed);
    const uint64_t generation = (ticket_.load(std::memory_order_relaxed) >> 48) + 1;
    // seq_cst with the load of parked_: a worker that is about to park sees this ticket, or we
    // see that it has parked.
    ticket_.store((generation << 48) | (static_cast<uint64_t>(pieces) << kPieceBits));
    if (parked_.load() > 0) {
        wake_.fetch_add(1);
        wake_.notify_all();
    }
    while (claim_one(0)) {
    }
    const auto all = static_cast<uint32_t>(pieces);
    for (int spin = 0; done_.load(std::memory_order_acquire) != all; ++spin) {
        if (spin < kSpins)
            relax();
        else if (const uint32_t seen = done_.load(std::memory_order_acquire); seen != all)
            done_.wait(seen, std::memory_order_acquire);
    }
    if (error_) std::rethrow_exception(error_);
}

// Takes the next piece of the open job and does it; false when none is left.
bool Pool::claim_one(int worker) {
    const uint64_t seen = ticket_.load(std::memory_order_acquire);
    if (next_piece(seen) >= pieces_of(seen)) return false;
    const uint64_t mine = ticket_.fetch_add(1, std::memory_order_acq_rel);
    const uint64_t piece = next_piece(mine);
    const uint64_t pieces = pieces_of(mine);
    if (piece >= pieces) return false;
    // The job cannot end before this piece is done, so call_ and context_ are those of `mine`.
    try {
        call_(context_, static_cast<int>(piece), worker);
    } catch (...) {
        const std::lock_guard<std::mutex> hold(error_lock_);
        if (!error_) error_ = std::current_exception();
    }
    // Wake the caller on every piece: it may have gone to sleep on any value.
    done_.fetch_add(1, std::memory_order_acq_rel);
    if (worker != 0) done_.notify_one();
    return true;
}

void Pool::work(int worker) {
    while (!stop_.load(std::memory_order_relaxed)) {
        if (claim_one(worker)) continue;
        const uint64_t seen = ticket_.load(std::memory_order_acquire);
        for (int spin = 0; spin < kSpins; ++spin) {
            if (ticket_.load(std::memory_order_acquire) >> 48 != seen >> 48) break;
            relax();
        }
        if (ticket_.load(std::memory_order_acquire) >> 48 == seen >> 48) park(seen);
    }
}

// Sleeps until another job than `seen` is open.
void Pool::park(uint64_t seen) {
    const uint32_t before = wake_.load();
    parked_.fetch_add(1);
    const bool same = ticket_.load() >> 48 == seen >> 48;
    if (same && !stop_.load()) wake_.wait(before);
    parked_.fetch_sub(1);
}

}  // namespace qt
