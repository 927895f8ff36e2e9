// Where the time of one 80 ms frame goes: talker, code predictor, codec, on a real or random model.
//
//   frame_bench TALKER.gguf CODEC.gguf [threads] [seconds] [precision] [frames per codec call]
//
// Prints the median and the best of each stage in ms per frame, wall and CPU, with what it moved
// and computed. Stages run in turns, as they do when speaking.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine.h"
#include "precision.h"

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

struct Stage {
    std::vector<double> wall_ms, cpu_ms;

    template <typename F>
    void time(int frames, const F& f) {
        const double w = wall(), c = cpu();
        f();
        wall_ms.push_back(1e3 * (wall() - w) / frames);
        cpu_ms.push_back(1e3 * (cpu() - c) / frames);
    }
};

double at(std::vector<double> v, double quantile) {
    std::sort(v.begin(), v.end());
    return v[static_cast<size_t>(quantile * static_cast<double>(v.size() - 1))];
}

int bench(int argc, char** argv) {
    qt::EngineOptions options;
    options.talker_path = argv[1];
    options.codec_path = argv[2];
    options.n_threads = argc > 3 ? std::atoi(argv[3]) : 1;
    options.kv_size = 1024;
    const double budget = argc > 4 ? std::atof(argv[4]) : 3;
    if (argc > 5 && !set_precision(argv[5], options))
        throw std::runtime_error("precision: exact, fast, or bits such as 5,6,4");
    const int step = argc > 6 ? std::atoi(argv[6]) : 4;
    const double load_start = wall();
    qt::Engine engine(options);
    std::printf("%s, %d threads, loaded in %.2f s\n", qt::kernels().name, engine.pool.size(),
                wall() - load_start);

    const auto width = static_cast<size_t>(engine.talker.hidden());
    qt::KvCache cache = engine.talker.new_cache(options.kv_size);
    qt::CodecState codec = engine.decoder.new_state();
    std::vector<float> h(width, 0.1F), logits(static_cast<size_t>(engine.talker.n_logits()));
    std::vector<int32_t> codes(16 * static_cast<size_t>(step));
    std::vector<float> audio(static_cast<size_t>(step * engine.decoder.samples_per_frame()));
    const qt::FrameCost cost = engine.frame_cost();
    std::printf("talker %.0f MB, predictor %.0f MB per frame\n", cost.talker_bytes / 1e6,
                cost.predictor_bytes / 1e6);
    std::map<std::string, Stage> stages;
    int position = 0;
    for (const double end = wall() + budget; wall() < end || position < step;) {
        for (int f = 0; f < step; ++f) {
            stages["1 talker"].time(1, [&] {
                engine.talker.forward(engine.pool, h.data(), {{&cache, position % 1000}});
                engine.talker.logits(engine.pool, h.data(), 1, logits.data());
            });
            qt::CodePredictor::Frame frame{.hidden = h.data(),
                                           .codes = {codes.data() + 16 * f, 16},
                                           .would_choose = {},
                                           .rules = {},
                                           .seed = 1,
                                           .index = static_cast<uint32_t>(position)};
            frame.codes[0] = position * 7 % 2048;
            stages["2 predictor"].time(
                1, [&] { engine.predictor.run(engine.pool, std::span(&frame, 1)); });
            ++position;
        }
        stages["3 codec"].time(step, [&] {
            engine.decoder.decode(engine.pool, codec, engine.decoder_work, codes.data(), step,
                                  audio.data());
        });
    }
    double median = 0, best = 0;
    for (const auto& [name, s] : stages) {
        std::printf("%-12s wall %6.1f (best %6.1f)  cpu %6.1f (best %6.1f) ms per frame\n",
                    name.c_str(), at(s.wall_ms, 0.5), at(s.wall_ms, 0), at(s.cpu_ms, 0.5),
                    at(s.cpu_ms, 0));
        median += at(s.wall_ms, 0.5);
        best += at(s.wall_ms, 0);
    }
    std::printf("%-12s wall %6.1f (best %6.1f): real-time factor %.2f (best %.2f)\n", "sum", median,
                best, median / 80, best / 80);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(
            stderr,
            "usage: frame_bench TALKER.gguf CODEC.gguf [threads] [seconds] [exact|fast|BITS] "
            "[frames per codec call]\n");
        return 2;
    }
    try {
        return bench(argc, argv);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "frame_bench: %s\n", e.what());
        return 1;
    }
}
