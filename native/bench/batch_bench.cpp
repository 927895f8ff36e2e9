// Requests at once, streamed, through the C ABI: what a lane-frame (80 ms of one request) costs.
//
//   batch_bench TALKER.gguf CODEC.gguf [frames] [threads] [rounds] [requests at once ...]
//
// For each count, in turns, the median of the rounds, per lane-frame: wall time, processor time,
// and of the time of all cores the part in which our threads had nothing to do. That part is told
// from the part that other processes took by the kernel's account of time spent waiting for a
// core (Linux; elsewhere both are one).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "qt.h"

namespace {

double wall() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

double cpu() {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Seconds in which threads of this process, of those that live, were ready but had no core.
double waited_for_core() {
    double total = 0;
    std::error_code none;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", none)) {
        double ran = 0, waited = 0;
        if (std::ifstream(task.path() / "schedstat") >> ran >> waited) total += 1e-9 * waited;
    }
    return total;
}

struct Figures {
    double wall_ms, cpu_ms, idle, first_ms;
};

struct Heard {
    double start = 0, first = 0;
};

bool on_chunk(const float*, int, void* user_data) {
    auto* heard = static_cast<Heard*>(user_data);
    if (heard->first == 0) heard->first = wall() - heard->start;
    return true;
}

Figures speak(qt_context* context, int requests, int frames, int threads) {
    const std::vector<float> voice(1024, 0.02F);
    std::vector<Heard> heard(static_cast<size_t>(requests));
    std::vector<std::thread> callers;
    const double w = wall(), c = cpu(), s = waited_for_core();
    for (int i = 0; i < requests; ++i)
        callers.emplace_back([&, i] {
            qt_tts_params p;
            qt_tts_default_params(&p);
            p.text = "The quick brown fox jumps over the lazy dog, and the river runs on.";
            p.lang = "english";
            p.seed = i;
            p.max_new_tokens = frames;
            p.ref_spk_emb = voice.data();
            p.ref_spk_dim = static_cast<int>(voice.size());
            p.on_chunk = on_chunk;
            p.on_chunk_user_data = &heard[static_cast<size_t>(i)];
            heard[static_cast<size_t>(i)].start = wall();
            qt_audio none = {};
            if (qt_synthesize(context, &p, &none) != QT_STATUS_OK)
                std::fprintf(stderr, "batch_bench: %s\n", qt_last_error());
        });
    for (std::thread& caller : callers) caller.join();
    const double elapsed = wall() - w, used = cpu() - c, stolen = waited_for_core() - s;
    double first = 0;
    for (const Heard& h : heard) first = std::max(first, h.first);
    const int lane_frames = requests * frames;
    return {1e3 * elapsed / lane_frames, 1e3 * used / lane_frames,
            1 - (used + stolen) / (elapsed * threads), 1e3 * first};
}

double median(const std::vector<Figures>& all, double Figures::* field) {
    std::vector<double> v;
    for (const Figures& f : all) v.push_back(f.*field);
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

int bench(int argc, char** argv) {
    const auto number = [&](int i, int otherwise) {
        return argc > i ? std::max(1, std::atoi(argv[i])) : otherwise;
    };
    const int frames = number(3, 16), threads = number(4, 2), rounds = number(5, 3);
    std::vector<int> counts;
    for (int i = 6; i < argc; ++i) counts.push_back(number(i, 1));
    if (counts.empty()) counts = {1, 2, 4, 8};
    qt_init_params init;
    qt_init_default_params(&init);
    init.talker_path = argv[1];
    init.codec_path = argv[2];
    init.max_batch = *std::max_element(counts.begin(), counts.end());
    init.talker_kv_size = 1024;
    init.n_threads = threads;
    qt_context* context = qt_init(&init);
    if (!context) {
        std::fprintf(stderr, "batch_bench: %s\n", qt_last_error());
        return 1;
    }
    speak(context, 1, 4, threads);
    std::map<int, std::vector<Figures>> all;
    for (int round = 0; round < rounds; ++round)
        for (const int count : counts) all[count].push_back(speak(context, count, frames, threads));
    std::printf("at once  ms per lane-frame  processor ms  idle  last first chunk ms\n");
    for (const int count : counts)
        std::printf("%7d %18.1f %13.1f %4.0f%% %20.0f\n", count,
                    median(all[count], &Figures::wall_ms), median(all[count], &Figures::cpu_ms),
                    100 * median(all[count], &Figures::idle),
                    median(all[count], &Figures::first_ms));
    qt_free(context);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr,
                     "usage: batch_bench TALKER.gguf CODEC.gguf [frames] [threads] [rounds] "
                     "[requests at once ...]\n");
        return 2;
    }
    return bench(argc, argv);
}
