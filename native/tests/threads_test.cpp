// The pool: every piece once, nothing lost between jobs, exceptions arrive, threads sleep and wake.
#include "threads.h"

#include <chrono>
#include <stdexcept>

#include "check.h"

using qt::Pool;

TEST(every_piece_runs_once) {
    for (const int threads : {1, 2, 3, 8}) {
        Pool pool(threads);
        CHECK(pool.size() == threads);
        for (const int pieces : {1, 2, 3, 7, 64, 1000}) {
            std::vector<std::atomic<int>> count(static_cast<size_t>(pieces));
            pool.parallel_for(pieces, [&](int i, int worker) {
                CHECK(worker >= 0 && worker < threads);
                count[static_cast<size_t>(i)].fetch_add(1);
            });
            for (const auto& c : count) CHECK(c.load() == 1);
        }
    }
}

TEST(every_row_is_done_once) {
    for (const int threads : {1, 3}) {
        Pool pool(threads);
        for (int rows = 0; rows < 40; ++rows) {
            std::vector<std::atomic<int>> count(static_cast<size_t>(rows));
            qt::by_rows(pool, rows, [&](int r) { count[static_cast<size_t>(r)].fetch_add(1); });
            for (const auto& c : count) CHECK(c.load() == 1);
        }
    }
}

TEST(many_small_jobs) {
    // Plain memory is written by whoever claims and read by the caller: TSan watches the hand-over.
    Pool pool(4);
    std::vector<int> values(16);
    for (int job = 0; job < 20000; ++job) {
        pool.parallel_for(16, [&](int i, int) { values[static_cast<size_t>(i)] = job + i; });
        for (int i = 0; i < 16; ++i)
            if (values[static_cast<size_t>(i)] != job + i) CHECK(!"a piece was lost");
    }
}

TEST(wakes_after_sleep) {
    Pool pool(3);
    for (int round = 0; round < 20; ++round) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // far beyond the spinning
        std::atomic<int> sum{0};
        pool.parallel_for(50, [&](int i, int) { sum.fetch_add(i); });
        CHECK(sum.load() == 49 * 50 / 2);
    }
}

TEST(uneven_pieces) {
    Pool pool(3);
    for (int round = 0; round < 5; ++round) {
        std::atomic<int> done{0};
        pool.parallel_for(9, [&](int i, int) {
            std::this_thread::sleep_for(std::chrono::microseconds(i == 0 ? 5000 : 100));
            done.fetch_add(1);
        });
        CHECK(done.load() == 9);
    }
}

TEST(an_exception_reaches_the_caller) {
    Pool pool(3);
    for (int round = 0; round < 50; ++round) {
        bool caught = false;
        try {
            pool.parallel_for(20, [](int i, int) {
                if (i == 13) throw std::runtime_error("piece 13");
            });
        } catch (const std::runtime_error& e) {
            caught = std::string(e.what()) == "piece 13";
        }
        CHECK(caught);
        std::atomic<int> count{0};
        pool.parallel_for(20, [&](int, int) { count.fetch_add(1); });
        CHECK(count.load() == 20);
    }
}

TEST(two_pools_side_by_side) {
    std::thread other([] {
        Pool pool(2);
        for (int i = 0; i < 2000; ++i) pool.parallel_for(8, [](int, int) {});
    });
    Pool pool(2);
    std::atomic<int> count{0};
    for (int i = 0; i < 2000; ++i) pool.parallel_for(8, [&](int, int) { count.fetch_add(1); });
    other.join();
    CHECK(count.load() == 16000);
}

TEST(a_task_in_the_background) {
    // The task's loops and the caller's at once; the caller's plain reads come after its wait.
    for (const int threads : {1, 2, 4}) {
        Pool pool(threads);
        for (int round = 0; round < 300; ++round) {
            std::vector<int> mine(40), theirs(40);
            pool.start_background([&] {
                for (int loop = 1; loop <= 5; ++loop)
                    pool.parallel_for(40, [&](int i, int worker) {
                        CHECK(worker >= 0 && worker < threads);
                        theirs[static_cast<size_t>(i)] += loop;
                    });
            });
            for (int loop = 1; loop <= 5; ++loop) {
                pool.parallel_for(40, [&](int i, int) { mine[static_cast<size_t>(i)] += loop; });
                for (const int v : mine) CHECK(v == loop * (loop + 1) / 2);
            }
            pool.finish_background();
            for (const int v : theirs) CHECK(v == 15);
        }
    }
}

TEST(one_task_after_the_other) {
    Pool pool(3);
    std::vector<int> order;  // plain: a task begins when the one before it has ended
    for (int i = 0; i < 500; ++i) pool.start_background([&order, i] { order.push_back(i); });
    pool.finish_background();
    CHECK(order.size() == 500);
    for (int i = 0; i < 500; ++i) CHECK(order[static_cast<size_t>(i)] == i);
}

TEST(no_two_threads_are_the_same_worker) {
    Pool pool(3);
    std::vector<std::atomic<int>> busy(3);
    const auto piece = [&](int, int worker) {
        CHECK(busy[static_cast<size_t>(worker)].fetch_add(1) == 0);
        std::this_thread::yield();
        busy[static_cast<size_t>(worker)].fetch_sub(1);
    };
    for (int round = 0; round < 200; ++round) {
        pool.start_background([&] { pool.parallel_for(30, piece); });
        pool.parallel_for(30, piece);
        pool.finish_background();
    }
}

TEST(a_pool_ends_with_its_task) {
    std::atomic<int> done{0};
    {
        Pool pool(2);
        pool.start_background([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            done.fetch_add(1);
        });
    }
    CHECK(done.load() == 1);
}

TEST(there_is_a_core) {
    CHECK(qt::usable_cores() >= 1);
}
