// A pool of threads for loops over independent pieces.
//
// Pieces are claimed one at a time from a counter, so a core that a neighbour took slows things in
// proportion instead of stalling everybody at a barrier. What a piece computes must not depend on
// who computes it: results are the same for every number of threads.
//
// Beside the caller's loops one task may run in the background (the codec beside the talker: one
// waits for memory, the other for arithmetic). It has a worker of its own while it lasts; its loops
// are open to everybody who is idle, and to the caller once that waits for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
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

    // f(piece, worker) for every piece in 0..pieces-1, on the calling thread and idle workers;
    // returns when all are done. `worker`, in 0..size()-1, is another one for every thread. One
    // call at a time, and one more from within the background task; not from within f.
    // The first exception thrown by f is thrown again here, after the rest has finished.
    template <typename F>
    void parallel_for(int pieces, F&& f) {
        if (pieces <= 0) return;
        if (pieces == 1 || workers_.empty()) {
            for (int i = 0; i < pieces; ++i) f(i, self());
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

    // Runs `task`, which must not throw, on a worker; at once on the calling thread where there is
    // none. Waits for the task before it.
    void start_background(std::function<void()> task);
    // Returns when no background task is left; helps with it.
    void finish_background();

  private:
    using Call = void (*)(void* context, int piece, int worker);

    enum class Task : uint8_t { none, waiting, running };

    // Loops of one caller at a time.
    struct Loops {
        // The open job in one word, so that a claim can never mix two jobs:
        // generation << 48 | pieces << 24 | next piece.
        alignas(64) std::atomic<uint64_t> ticket{0};
        alignas(64) std::atomic<uint32_t> done{0};
        Call call = nullptr;
        void* context = nullptr;
        int owner = 0;  // who waits for it
        std::mutex error_lock;
        std::exception_ptr error;
    };

    int self() const;
    void run(int pieces, Call call, void* context);
    void work(int worker);
    bool claim_one(Loops& loops, int worker);
    bool take_task(int worker);
    void publish();

    Loops caller_;
    Loops background_;
    alignas(64) std::atomic<uint32_t> news_{0};  // counts jobs and tasks; idle workers sleep on it
    std::atomic<int> parked_{0};
    std::atomic<bool> stop_{false};
    alignas(64) std::atomic<Task> task_state_{Task::none};
    std::function<void()> task_;
    std::vector<std::thread> workers_;
};

// f(row) for every row of a small task: a few rows take less time than another core takes to come.
template <typename F>
void by_rows(Pool& pool, int rows, const F& f) {
    constexpr int kRowsPerPiece = 8;
    pool.parallel_for((rows + kRowsPerPiece - 1) / kRowsPerPiece, [&](int piece, int) {
        const int first = piece * kRowsPerPiece;
        for (int r = first; r < first + kRowsPerPiece && r < rows; ++r) f(r);
    });
}

}  // namespace qt
