// What `fast` costs: two precisions side by side on the same model, teacher-forced.
//
//   quality_bench TALKER.gguf CODEC.gguf [frames] [threads] [precision] [OTHER-TALKER.gguf]
//
// precision: exact, fast, or bits such as 5,6,4 (precision.h); the other talker is what that one
// reads. The exact engine speaks greedily; the fast one is given the same inputs and codes, and
// asked at every step what it would have chosen. One JSON line: the share of equal choices for code
// 0 and for codes 1 to 15, and the relative error of the talker's hidden state; the codec is the
// same in both. With random weights the best logits are close together, so the shares are far below
// what a trained model has.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "engine.h"
#include "precision.h"

namespace {

constexpr int kPromptRows = 16;

struct Side {
    explicit Side(const qt::EngineOptions& options)
        : engine(options),
          cache(engine.talker.new_cache(2048)),
          hidden(static_cast<size_t>(engine.talker.hidden())),
          logits(static_cast<size_t>(engine.talker.n_logits())) {}

    // The row through the talker; returns the best code 0.
    int step(const std::vector<float>& row) {
        hidden = row;
        engine.talker.forward(engine.pool, hidden.data(), {{&cache, position++}});
        engine.talker.logits(engine.pool, hidden.data(), 1, logits.data());
        const auto codes = logits.begin() + engine.info.codes;
        return static_cast<int>(std::max_element(logits.begin(), codes) - logits.begin());
    }

    qt::Engine engine;
    qt::KvCache cache;
    std::vector<float> hidden, logits;
    int position = 0;
};

double norm(const std::vector<float>& a, const std::vector<float>* b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        const double v = b ? double{a[i]} - double{(*b)[i]} : double{a[i]};
        sum += v * v;
    }
    return std::sqrt(sum);
}

int bench(int argc, char** argv) {
    const int frames = std::clamp(argc > 3 ? std::atoi(argv[3]) : 32, 1, 1000);
    const int threads = argc > 4 ? std::atoi(argv[4]) : 0;
    qt::EngineOptions plain;
    plain.talker_path = argv[1];
    plain.codec_path = argv[2];
    plain.kv_size = 2048;
    plain.n_threads = threads;
    qt::EngineOptions fewer = plain;
    if (!set_precision(argc > 5 ? argv[5] : "fast", fewer))
        throw std::runtime_error("precision: exact, fast, or bits such as 5,6,4");
    if (argc > 6) fewer.talker_path = argv[6];
    Side exact(plain), fast(fewer);
    const auto width = exact.hidden.size();
    std::vector<float> row(width), text(width);
    int code0 = 0, fast_code0 = 0;
    const auto both = [&] {
        code0 = exact.step(row);
        fast_code0 = fast.step(row);
    };
    for (int i = 0; i < kPromptRows; ++i) {
        const int32_t id = 100 + i;
        exact.engine.talker.text_rows(exact.engine.pool, {&id, 1}, row.data());
        both();
    }
    const int32_t filler = 7;
    exact.engine.talker.text_rows(exact.engine.pool, {&filler, 1}, text.data());

    const qt::SampleRules greedy{.sample = false};
    int equal_first = 0, equal_rest = 0;
    double hidden_error = 0;
    for (int f = 0; f < frames; ++f) {
        std::vector<int32_t> codes(16), would(16);
        codes[0] = code0;
        equal_first += code0 == fast_code0;
        hidden_error += norm(exact.hidden, &fast.hidden) / norm(exact.hidden, nullptr) / frames;
        qt::CodePredictor::Frame one{
            .hidden = exact.hidden.data(), .codes = codes, .would_choose = {}, .rules = greedy};
        exact.engine.predictor.run(exact.engine.pool, {&one, 1});
        qt::CodePredictor::Frame two{
            .hidden = fast.hidden.data(), .codes = codes, .would_choose = would, .rules = greedy};
        fast.engine.predictor.run(fast.engine.pool, {&two, 1});
        for (size_t i = 1; i < 16; ++i) equal_rest += codes[i] == would[i];
        row = text;
        exact.engine.codes.add_frame(codes, row.data());
        both();
    }
    std::printf(
        "{\"frames\": %d, \"code0_equal\": %.3f, \"codes_1_15_equal\": %.3f, "
        "\"hidden_error\": %.4f}\n",
        frames, static_cast<double>(equal_first) / frames,
        static_cast<double>(equal_rest) / (15.0 * frames), hidden_error);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr,
                     "usage: quality_bench TALKER.gguf CODEC.gguf [frames] [threads] "
                     "[exact|fast|BITS] [OTHER-TALKER.gguf]\n");
        return 2;
    }
    try {
        return bench(argc, argv);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "quality_bench: %s\n", e.what());
        return 1;
    }
}
