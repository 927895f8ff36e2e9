// How fast the codec decoder is on this machine, now.
//
//   codec_bench CODEC.gguf [threads] [seconds]
//
// Prints, for 1, 2 and 4 frames per call: CPU and wall milliseconds per 80 ms frame, and the CPU
// time as a multiple of what the same multiply-adds take in a matrix product that stays in the L2
// cache, measured in turns with it. Wall times depend on the neighbours; the multiple hardly does.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "codec_decoder.h"

namespace {

double cpu_seconds() {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double wall_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// Seconds per multiply-add of a convolution 96 -> 96, 7 taps, over 96 rows.
double calibrate() {
    constexpr int kC = 96, kRows = 96, kTaps = 7;
    static std::vector<float> x((kRows + kTaps) * kC, 0.5F), w(kTaps * kC * kC, 0.01F),
        y(kRows * kC);
    qt::GemmArgs g;
    g.x = x.data();
    g.x_row = kC;
    g.c_in = kC * kTaps;
    g.w = w.data();
    g.rows = kRows;
    g.n = kC;
    g.y = y.data();
    g.y_row = kC;
    const double start = cpu_seconds();
    constexpr int kTimes = 200;
    for (int i = 0; i < kTimes; ++i) qt::kernels().gemm_f32(g);
    return (cpu_seconds() - start) / (double{kTimes} * kRows * kTaps * kC * kC);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: codec_bench CODEC.gguf [threads] [seconds]\n");
        return 2;
    }
    try {
        qt::Pool pool(argc > 2 ? std::atoi(argv[2]) : 1);
        const double budget = argc > 3 ? std::atof(argv[3]) : 3;
        const double load_start = wall_seconds();
        const qt::Gguf file(argv[1]);
        const qt::CodecDecoder decoder(file, pool);
        qt::CodecDecoder::Workspace work(decoder);
        qt::FrameCost cost;
        decoder.add_cost(cost);
        std::printf("%s, %d threads, loaded in %.2f s; %.0f M multiply-adds per frame\n",
                    qt::kernels().name, pool.size(), wall_seconds() - load_start,
                    cost.codec_mul_adds / 1e6);
        std::vector<int32_t> codes(4 * static_cast<size_t>(decoder.groups()));
        std::vector<float> audio(4 * static_cast<size_t>(decoder.samples_per_frame()));
        for (const int step : {1, 2, 4}) {
            qt::CodecState state = decoder.new_state();
            std::vector<double> cpu, wall, multiple;
            for (const double end = wall_seconds() + budget; wall_seconds() < end;) {
                const double before = calibrate();
                for (size_t i = 0; i < codes.size(); ++i)
                    codes[i] = std::rand() % decoder.codebook_size();
                const double c = cpu_seconds(), w = wall_seconds();
                decoder.decode(pool, state, work, codes.data(), step, audio.data());
                cpu.push_back((cpu_seconds() - c) / step);
                wall.push_back((wall_seconds() - w) / step);
                multiple.push_back(cpu.back() / (cost.codec_mul_adds * (before + calibrate()) / 2));
            }
            const auto at = [](std::vector<double>& v, double quantile) {
                std::sort(v.begin(), v.end());
                return v[static_cast<size_t>(quantile * static_cast<double>(v.size() - 1))];
            };
            std::printf(
                "%d frames per call: cpu %.1f (best %.1f), wall %.1f (best %.1f) ms per frame; "
                "%.2f times the multiply-adds alone\n",
                step, 1e3 * at(cpu, 0.5), 1e3 * at(cpu, 0), 1e3 * at(wall, 0.5), 1e3 * at(wall, 0),
                at(multiple, 0.5));
        }
    } catch (const std::exception& e) {
        std::fprintf(stderr, "codec_bench: %s\n", e.what());
        return 1;
    }
    return 0;
}
