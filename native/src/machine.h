// What this machine can do at most: the two numbers that bound the engine's speed.
#pragma once

namespace qt {

struct MachineLimits {
    int n_threads = 0;
    double read_bytes_s = 0;  // from memory, all threads together
    double mul_adds_s = 0;    // float, in a product that stays in the caches
};

// Takes about half a second and 256 MiB; the best of several tries. n_threads 0: usable_cores().
MachineLimits measure_machine(int n_threads);

}  // namespace qt
