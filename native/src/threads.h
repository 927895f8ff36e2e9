// A pool of threads for loops over independent pieces.
//
// Pieces are claimed one at a time from a counter, so a core that a neighbour took slows things in
// proportion instead of stalling everybody at a barrier. What a piece computes must not depend on
// who computes it: results are the same for every number of threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace qt {

// Cores this process may use, at least 1 (affinity and cgroup quota respected; hyper-threads
// counted once where the kernel says which are siblings).
int usable_cores();

class Pool {
  public:
    // n_threads including the caller's own; at least 1.
    explicit Pool(int n_threads);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int size() const { return static_cast<int>(workers_.size()) + 1; }

    // f(piece, worker) for every piece in 0..pieces-1, on the calling thread (worker 0) and the
    // pool's (1..size()-1); returns when all are done. One call at a time, not from within f.
    // The first exception thrown by f is thrown again here, after the rest has finished.
    template <typename F>
    void parallel_for(int pieces, F&& f) {
        if (pieces <= 0) return;
        if (pieces == 1 || workers_.empty()) {
            for (int i = 0; i < pieces; ++i) f(i, 0);
            return;
        }
        using Function = std::remove_reference_t<F>;
        run(
            pieces,
            [](void* context, int piece, int worker) {
                (*static_cast<Function*>(context))(piece, worker);
            },
            const_cast<void*>(static_cast<const void*>(&f)));
    }

  private:
    using Call = void (*)(void* context, int piece, int worker);

    void run(int pieces, Call call, void* context);
    void work(int worker);
    bool claim_one(int worker);
    void park(uint64_t seen);

    // The open job in one word, so that a claim can never mix two jobs:
    // generation << 48 | pieces << 24 | next piece.
    alignas(64) std::atomic<uint64_t> ticket_{0};
    alignas(64) std::atomic<uint32_t> done_{0};
    alignas(64) std::atomic<uint32_t> wake_{0};
    std::atomic<int> parked_{0};
    std::atomic<bool> stop_{false};
    Call call_ = nullptr;
    void* context_ = nullptr;
    std::mutex error_lock_;
    std::exception_ptr error_;
    std::vector<std::thread> workers_;
};

}  // namespace qt
