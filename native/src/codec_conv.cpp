#include "codec_conv.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "status.h"

namespace qt {
namespace {

constexpr int kDilations[] = {1, 3, 9};
// Rows per piece of a fused residual unit: its input and middle stay in the L2 cache.
constexpr int kFusedRows = 96;
// A unit whose first weights are larger than this is cut by outputs instead: every thread would
// otherwise read them all.
constexpr size_t kFusedWeightBytes = 1200 << 10;

}  // namespace

CodecConv::CodecConv(const Gguf& file, Pool& pool, int latent) : latent_(latent) {
    const std::string key = "qwen3-tts-tokenizer.decoder.";
    int channels = file.integer(key + "decoder_dim", 1, 1 << 16);
    const std::vector<int32_t> rates = file.integers(key + "upsample_rates");
    if (rates.empty() || rates.size() > 8 || channels >> rates.size() == 0)
        file.fail(strf("%supsample_rates has %zu stages, which halve %d channels each", key.c_str(),
                       rates.size(), channels));
    load_upsamplers(file, pool);

    const std::string dec = "tok_dec.dec.";
    first_past_ = remember(kEdgeTaps - 1, latent, samples_per_frame_);
    first_ = load_conv(pool, file, dec + "0.conv", channels, latent, kEdgeTaps, true);
    add_snake(file, dec + "1.snake", channels, first_);
    row_floats_ = std::max(row_floats_, static_cast<size_t>(samples_per_frame_) * channels);
    for (size_t i = 0; i < rates.size(); ++i) {
        if (rates[i] < 1 || rates[i] > 64)
            file.fail(strf("%supsample_rates holds %d, expected 1 to 64", key.c_str(), rates[i]));
        load_stage(file, pool, static_cast<int>(i) + 1, rates[i], channels);
        channels /= 2;
        // The next consumer's snake is applied as this stage's last unit stores its output.
        add_snake(file, strf("%s%zu.snake", dec.c_str(), i + 2), channels,
                  stages_.back().units.back().conv2);
    }
    last_past_ = remember(kEdgeTaps - 1, channels, samples_per_frame_);
    last_ = load_conv(pool, file, strf("%s%zu.conv", dec.c_str(), rates.size() + 2), 1, channels,
                      kEdgeTaps, true);
    receptive_frames_ = static_cast<int>(std::ceil(receptive_));
}

void CodecConv::load_upsamplers(const Gguf& file, Pool& pool) {
    const std::string key = "qwen3-tts-tokenizer.decoder.upsampling_ratios";
    const std::vector<int32_t> ratios = file.integers(key);
    if (ratios.size() > 8) file.fail(strf("%s has %zu entries", key.c_str(), ratios.size()));
    const int c = latent_;
    for (size_t i = 0; i < ratios.size(); ++i) {
        if (ratios[i] < 1 || ratios[i] > 16)
            file.fail(strf("%s holds %d, expected 1 to 16", key.c_str(), ratios[i]));
        const std::string name = strf("tok_dec.upsample.%zu.", i);
        Upsampler u;
        u.ratio = ratios[i];
        u.up = load_conv_transposed(pool, file, name + "conv", c, c, u.ratio, u.ratio);
        samples_per_frame_ *= u.ratio;
        u.past = remember(kDepthwiseTaps - 1, c, samples_per_frame_);
        const std::vector<float> w =
            to_floats(file.tensor(name + "dwconv.weight", {c, 1, kDepthwiseTaps}));
        u.depthwise.resize(w.size());
        for (int ch = 0; ch < c; ++ch)
            for (int j = 0; j < kDepthwiseTaps; ++j)
                u.depthwise[static_cast<size_t>(j) * c + ch] =
                    w[static_cast<size_t>(ch) * kDepthwiseTaps + j];
        u.depthwise_bias = load_vector(file, name + "dwconv.bias", c);
        u.norm = load_vector(file, name + "norm.weight", c);
        u.norm_bias = load_vector(file, name + "norm.bias", c);
        const int wide = static_cast<int>(file.tensor(name + "pwconv1.weight", {-1, c}).shape[0]);
        u.wide = load_linear(pool, file, name + "pwconv1", wide, c, true);
        u.wide.act = Act::gelu;
        u.narrow = load_linear(pool, file, name + "pwconv2", c, wide, true);
        u.narrow.scale = load_vector(file, name + "gamma", c);
        row_floats_ = std::max(row_floats_, static_cast<size_t>(samples_per_frame_) * c);
        hidden_floats_ = std::max(hidden_floats_, static_cast<size_t>(samples_per_frame_) * wide);
        upsamplers_.push_back(std::move(u));
    }
}

// Stage `index` of tok_dec.dec: 1 for the first. Its input has `channels`, its output half.
void CodecConv::load_stage(const Gguf& file, Pool& pool, int index, int rate, int channels) {
    const std::string name = strf("tok_dec.dec.%d.", index);
    const int out = channels / 2;
    Stage stage;
    stage.rate = rate;
    stage.past = remember(1, channels, samples_per_frame_);
    stage.up = load_conv_transposed(pool, file, name + "conv_t", out, channels, 2 * rate, rate);
    samples_per_frame_ *= rate;
    row_floats_ = std::max(row_floats_, static_cast<size_t>(samples_per_frame_) * out);
    hidden_floats_ = std::max(hidden_floats_, static_cast<size_t>(samples_per_frame_) * out);
    for (int i = 0; i < 3; ++i) {
        const std::string r = strf("%sres.%d.", name.c_str(), i);
        ResidualUnit unit;
        unit.past = remember((kUnitTaps - 1) * kDilations[i], out, samples_per_frame_);
        unit.conv1 = load_conv(pool, file, r + "conv1", out, out, kUnitTaps, true);
        unit.conv1.dilation = kDilations[i];
        add_snake(file, r + "act2", out, unit.conv1);
        unit.conv2 = load_conv(pool, file, r + "conv2", out, out, 1, true);
        // What feeds this unit applies its first snake.
        add_snake(file, r + "act1", out, i == 0 ? stage.up : stage.units.back().conv2);
        stage.units.push_back(std::move(unit));
    }
    stages_.push_back(std::move(stage));
}

CodecConv::Past CodecConv::remember(int rows, int channels, double rows_per_frame) {
    const Past past{state_floats_, rows, channels};
    const auto floats = static_cast<size_t>(rows) * channels;
    state_floats_ += floats;
    past_floats_ = std::max(past_floats_, floats);
    receptive_ += rows / rows_per_frame;
    return past;
}

CodecConv::Workspace::Workspace(const CodecConv& conv, int frames) : frames_(frames) {
    const auto n = static_cast<size_t>(frames);
    const size_t plain = conv.row_floats_ * n;
    const size_t with_past = plain + conv.past_floats_;
    const size_t hidden = conv.hidden_floats_ * n;
    memory_ = Block((plain + 2 * with_past + hidden) * sizeof(float));
    raw_ = memory_.as<float>();
    even_ = raw_ + plain;
    odd_ = even_ + with_past;
    hidden_ = odd_ + with_past;
}

void CodecConv::load_past(const Past& past, const float* state, float* rows) {
    std::memcpy(rows, state + past.offset,
                static_cast<size_t>(past.rows) * past.channels * sizeof(float));
}

// `rows` holds past.rows + added rows; the last past.rows of them are kept.
void CodecConv::save_past(const Past& past, float* state, const float* rows, int added) {
    std::memcpy(state + past.offset, rows + static_cast<ptrdiff_t>(added) * past.channels,
                static_cast<size_t>(past.rows) * past.channels * sizeof(float));
}

// x [rows, latent] -> y [rows * ratio, latent].
void CodecConv::upsample(Pool& pool, const Kernels& kernels, const Upsampler& u, float* state,
                         Workspace& work, const float* x, int rows, float* y) const {
    float* past = work.odd_;
    float* up = past + static_cast<ptrdiff_t>(u.past.rows) * latent_;
    load_past(u.past, state, past);
    run(pool, kernels, u.up, {.x = x, .rows = rows, .y = up});
    rows *= u.ratio;
    kernels.depthwise({.x = past,
                       .x_row = latent_,
                       .taps = kDepthwiseTaps,
                       .channels = latent_,
                       .w = u.depthwise.data(),
                       .bias = u.depthwise_bias.data(),
                       .rows = rows,
                       .y = work.raw_,
                       .y_row = latent_});
    save_past(u.past, state, past, rows);
    constexpr float kEpsilon = 1e-6F;  // fixed in the model's code
    for (int r = 0; r < rows; ++r) {
        float* row = work.raw_ + static_cast<ptrdiff_t>(r) * latent_;
        kernels.layer_norm(row, u.norm.data(), u.norm_bias.data(), kEpsilon, latent_, row);
    }
    run(pool, kernels, u.wide, {.x = work.raw_, .rows = rows, .z = work.hidden_});
    run(pool, kernels, u.narrow, {.x = work.hidden_, .rows = rows, .y = y, .residual = up});
}

// y = x' + conv2(snake2(conv1(snake1(x'))));  x = snake1(x') with its past before it, y holds x' at
// first; z = the next layer's snake of y.
void CodecConv::residual_unit(Pool& pool, const Kernels& kernels, const ResidualUnit& unit,
                              Workspace& work, const float* x, int rows, float* y, float* z) const {
    const LayerIo one{.x = x, .rows = rows, .z = work.hidden_};
    const LayerIo two{.x = work.hidden_, .rows = rows, .y = y, .z = z, .residual = y};
    const int n = unit.conv1.n();
    const size_t weight_bytes = unit.conv1.w.data.bytes();
    if (weight_bytes > kFusedWeightBytes) {
        run(pool, kernels, unit.conv1, one);
        run(pool, kernels, unit.conv2, two);
        return;
    }
    pool.parallel_for((rows + kFusedRows - 1) / kFusedRows, [&](int piece, int) {
        const int r0 = piece * kFusedRows;
        const int r1 = std::min(rows, r0 + kFusedRows);
        run_part(kernels, unit.conv1, one, r0, r1, 0, n);
        run_part(kernels, unit.conv2, two, r0, r1, 0, n);
    });
}

void CodecConv::forward(Pool& pool, const Kernels& kernels, float* state, Workspace& work,
                        const float* latent, int frames, float* audio) const {
    int rows = frames;
    const float* x = latent;
    // Upsamplers write into even_ behind room for the past of what reads them; the room is the
    // first convolution's for all of them.
    const ptrdiff_t room = static_cast<ptrdiff_t>(first_past_.rows) * latent_;
    for (const Upsampler& u : upsamplers_) {
        upsample(pool, kernels, u, state, work, x, rows, work.even_ + room);
        rows *= u.ratio;
        x = work.even_ + room;
    }
    if (upsamplers_.empty())
        std::copy(latent, latent + static_cast<ptrdiff_t>(rows) * latent_, work.even_ + room);

    float* in = work.even_;  // what the next convolution reads, its past first
    float* out = work.odd_;
    const auto behind = [](const Past& past, float* buffer) {
        return buffer + static_cast<ptrdiff_t>(past.rows) * past.channels;
    };
    const auto past_of = [&](size_t stage, size_t unit) -> const Past& {
        if (stage == stages_.size()) return last_past_;
        return unit == 0 ? stages_[stage].past : stages_[stage].units[unit - 1].past;
    };
    load_past(first_past_, state, in);
    run(pool, kernels, first_, {.x = in, .rows = rows, .z = behind(past_of(0, 0), out)});
    save_past(first_past_, state, in, rows);
    std::swap(in, out);
    for (size_t i = 0; i < stages_.size(); ++i) {
        const Stage& stage = stages_[i];
        load_past(stage.past, state, in);
        run(pool, kernels, stage.up,
            {.x = in, .rows = rows, .y = work.raw_, .z = behind(past_of(i, 1), out)});
        save_past(stage.past, state, in, rows);
        rows *= stage.rate;
        std::swap(in, out);
        for (size_t u = 0; u < stage.units.size(); ++u) {
            const bool final = u + 1 == stage.units.size();
            const Past& past = stage.units[u].past;
            load_past(past, state, in);
            residual_unit(pool, kernels, stage.units[u], work, in, rows, work.raw_,
                          behind(final ? past_of(i + 1, 0) : past_of(i, u + 2), out));
            save_past(past, state, in, rows);
            std::swap(in, out);
        }
    }
    load_past(last_past_, state, in);
    run(pool, kernels, last_, {.x = in, .rows = rows, .y = audio});
    save_past(last_past_, state, in, rows);
    for (int i = 0; i < rows; ++i) audio[i] = std::clamp(audio[i], -1.0F, 1.0F);
}

}  // namespace qt
