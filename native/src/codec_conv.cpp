#include "codec_conv.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <utility>

#include "status.h"

namespace qt {
namespace {

constexpr int kDilations[] = {1, 3, 9};
// Rows per piece of a fused residual unit: its input and middle stay in the L2 cache.
// A multiple of what whole tiles of every dilation make (winograd.h).
constexpr int kFusedRows = kWinogradOut * 9 * 4;
// A unit whose first weights are larger than this is cut by outputs instead: every thread would
// otherwise read them all.
constexpr size_t kFusedWeightBytes = 1600 << 10;
// From this rate on, a frame alone fills the cores, and its buffers fill the L2 cache: frames go
// one by one. Below it, all frames of a call share one reading of the large weights.
constexpr int kFrameByFrameRows = 100;
constexpr int kMaxRate = 1 << 16;  // samples per frame; a bound for damaged files

Width width_for(int rows_per_frame) {
    return rows_per_frame >= kFrameByFrameRows ? Width::wide : Width::kept;
}

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
    for (size_t i = 0; i < rates.size(); ++i) {
        if (rates[i] < 1 || rates[i] > 64)
            file.fail(strf("%supsample_rates holds %d, expected 1 to 64", key.c_str(), rates[i]));
        const int input_rate = samples_per_frame_;
        load_stage(file, pool, static_cast<int>(i) + 1, rates[i], channels);
        channels /= 2;
        // The next consumer's snake is applied as this stage's last unit stores its output.
        add_snake(file, strf("%s%zu.snake", dec.c_str(), i + 2), channels,
                  stages_.back().units.back().conv2);
        if (input_rate < kFrameByFrameRows && i + 1 < rates.size()) tail_ = i + 1;
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
        grow_rate(file, u.ratio);
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
    stage.up = load_conv_transposed(pool, file, name + "conv_t", out, channels, 2 * rate, rate,
                                    width_for(samples_per_frame_));
    grow_rate(file, rate);
    for (size_t i = 0; i < std::size(kDilations); ++i)
        load_unit(file, pool, strf("%sres.%zu.", name.c_str(), i), out, kDilations[i], stage);
    stages_.push_back(std::move(stage));
}

void CodecConv::load_unit(const Gguf& file, Pool& pool, const std::string& name, int channels,
                          int dilation, Stage& stage) {
    const Width width = width_for(samples_per_frame_);
    ResidualUnit unit;
    unit.past = remember((kUnitTaps - 1) * dilation, channels, samples_per_frame_);
    unit.frame_rows = samples_per_frame_;
    // Where few rows meet the weights, reading 1.4 times as many costs more than is saved.
    const bool many_rows = width == Width::wide && fits_winograd(samples_per_frame_, dilation);
    if (many_rows) {
        unit.conv1_fast =
            load_conv_winograd(pool, file, name + "conv1", channels, channels, dilation, true);
    } else {
        unit.conv1 =
            load_conv(pool, file, name + "conv1", channels, channels, kUnitTaps, true, width);
        unit.conv1.dilation = dilation;
    }
    add_snake(file, name + "act2", channels, many_rows ? unit.conv1_fast.layer : unit.conv1);
    unit.conv2 = load_conv(pool, file, name + "conv2", channels, channels, 1, true, width);
    // What feeds this unit applies its first snake.
    add_snake(file, name + "act1", channels,
              stage.units.empty() ? stage.up : stage.units.back().conv2);
    stage.units.push_back(std::move(unit));
}

void CodecConv::grow_rate(const Gguf& file, int factor) {
    samples_per_frame_ *= factor;
    if (samples_per_frame_ > kMaxRate)
        file.fail(strf("the upsampling factors make more than %d samples per frame", kMaxRate));
}

CodecConv::Past CodecConv::remember(int rows, int channels, double rows_per_frame) {
    const Past past{state_floats_, rows, channels};
    state_floats_ += past.floats();
    receptive_ += rows / rows_per_frame;
    return past;
}

const CodecConv::Past& CodecConv::past_of_stage(size_t i) const {
    return i == stages_.size() ? last_past_ : stages_[i].past;
}

CodecConv::Workspace::Workspace(const CodecConv& conv, int frames) : frames_(frames) {
    const auto n = static_cast<size_t>(frames);
    const auto latent = static_cast<size_t>(conv.latent_);
    size_t rows = n, wide = 0, front = conv.first_past_.floats() + n * latent;
    size_t up = 0, raw = 0, unit = 0, hidden = 0, edge = 0, boundary = 0;
    for (const Upsampler& u : conv.upsamplers_) {
        rows *= static_cast<size_t>(u.ratio);
        up = std::max(up, u.past.floats() + rows * latent);
        front = std::max(front, conv.first_past_.floats() + rows * latent);
        wide = std::max(wide, rows * static_cast<size_t>(u.wide.n()));
    }
    raw = rows * latent;
    for (size_t i = 0; i < conv.stages_.size(); ++i) {
        const Stage& s = conv.stages_[i];
        size_t& input = i == conv.tail_ ? boundary : edge;
        input = std::max(input, s.past.floats() + rows * static_cast<size_t>(s.past.channels));
        if (i == conv.tail_) rows /= n;
        rows *= static_cast<size_t>(s.rate);
        const size_t floats = rows * static_cast<size_t>(s.units.front().past.channels);
        raw = std::max(raw, floats);
        hidden = std::max(hidden, floats);
        for (const ResidualUnit& u : s.units) unit = std::max(unit, u.past.floats() + floats);
        edge = std::max(edge, conv.past_of_stage(i + 1).floats() + floats);
    }
    hidden = std::max(hidden, wide);
    memory_ = Block((front + up + raw + hidden + boundary + 2 * (unit + edge)) * sizeof(float));
    float* at = memory_.as<float>();
    const auto take = [&](size_t floats) { return std::exchange(at, at + floats); };
    front_ = take(front);
    up_ = take(up);
    raw_ = take(raw);
    hidden_ = take(hidden);
    boundary_ = take(boundary);
    for (int i : {0, 1}) {
        unit_[i] = take(unit);
        edge_[i] = take(edge);
    }
}

void CodecConv::add_cost(FrameCost& cost) const {
    double rows = 1;
    const auto add = [&](const Layer& layer) {
        cost.codec_mul_adds += layer.mul_adds(rows);
        cost.codec_bytes += layer.weight_bytes();
    };
    for (const Upsampler& u : upsamplers_) {
        add(u.up);
        rows *= u.ratio;
        add(u.wide);
        add(u.narrow);
    }
    add(first_);
    for (const Stage& stage : stages_) {
        add(stage.up);
        rows *= stage.rate;
        for (const ResidualUnit& unit : stage.units) {
            if (unit.conv1_fast.loaded()) {
                cost.codec_mul_adds += unit.conv1_fast.mul_adds(unit.frame_rows);
                cost.codec_bytes += unit.conv1_fast.weight_bytes();
            } else {
                add(unit.conv1);
            }
            add(unit.conv2);
        }
    }
    add(last_);
}

void CodecConv::load_past(const Past& past, const float* state, float* rows) {
    std::memcpy(rows, state + past.offset, past.floats() * sizeof(float));
}

// `rows` holds past.rows + added rows; the last past.rows of them are kept.
void CodecConv::save_past(const Past& past, float* state, const float* rows, int added) {
    std::memcpy(state + past.offset, rows + static_cast<ptrdiff_t>(added) * past.channels,
                past.floats() * sizeof(float));
}

// x [rows, latent] -> y [rows * ratio, latent].
void CodecConv::upsample(Pool& pool, const Kernels& kernels, const Upsampler& u, float* state,
                         Workspace& work, const float* x, int rows, float* y) const {
    float* past = work.up_;
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
    const bool fast = unit.conv1_fast.loaded();
    const size_t weight_bytes =
        fast ? static_cast<size_t>(unit.conv1_fast.weight_bytes()) : unit.conv1.w.data.bytes();
    if (weight_bytes > kFusedWeightBytes) {
        if (fast)
            run(pool, kernels, unit.conv1_fast, one, unit.frame_rows);
        else
            run(pool, kernels, unit.conv1, one);
        run(pool, kernels, unit.conv2, two);
        return;
    }
    const int n = unit.first().n();
    // Cut frame by frame, so that how many come at once makes no difference.
    const int per_frame = (unit.frame_rows + kFusedRows - 1) / kFusedRows;
    pool.parallel_for(rows / unit.frame_rows * per_frame, [&](int piece, int) {
        const int frame_end = (piece / per_frame + 1) * unit.frame_rows;
        const int r0 = frame_end - unit.frame_rows + piece % per_frame * kFusedRows;
        const int r1 = std::min(frame_end, r0 + kFusedRows);
        if (fast)
            run_part(kernels, unit.conv1_fast, one, r0, r1, 0, n);
        else
            run_part(kernels, unit.conv1, one, r0, r1, 0, n);
        run_part(kernels, unit.conv2, two, r0, r1, 0, n);
    });
}

// in: the stage's past, then `rows` rows; z [rows * rate]: the next layer's input.
void CodecConv::run_stage(Pool& pool, const Kernels& kernels, const Stage& stage, float* state,
                          Workspace& work, const float* in, int rows, float* z) const {
    float* x = work.unit_[0];
    float* next = work.unit_[1];
    run(pool, kernels, stage.up,
        {.x = in, .rows = rows, .y = work.raw_, .z = x + stage.units[0].past.floats()});
    rows *= stage.rate;
    for (size_t u = 0; u < stage.units.size(); ++u) {
        const ResidualUnit& unit = stage.units[u];
        const bool final = u + 1 == stage.units.size();
        load_past(unit.past, state, x);
        residual_unit(pool, kernels, unit, work, x, rows, work.raw_,
                      final ? z : next + stage.units[u + 1].past.floats());
        save_past(unit.past, state, x, rows);
        std::swap(x, next);
    }
}

// Everything up to the input of stage tail_, which it leaves in work.boundary_ behind room for its
// past. Returns the rows of it.
int CodecConv::run_head(Pool& pool, const Kernels& kernels, float* state, Workspace& work,
                        const float* latent, int frames) const {
    int rows = frames;
    float* front = work.front_ + first_past_.floats();
    const float* x = latent;
    for (const Upsampler& u : upsamplers_) {
        upsample(pool, kernels, u, state, work, x, rows, front);
        rows *= u.ratio;
        x = front;
    }
    if (upsamplers_.empty()) std::copy_n(latent, static_cast<ptrdiff_t>(rows) * latent_, front);

    const auto input_of = [&](size_t i) { return i == tail_ ? work.boundary_ : work.edge_[i % 2]; };
    load_past(first_past_, state, work.front_);
    run(pool, kernels, first_,
        {.x = work.front_, .rows = rows, .z = input_of(0) + stages_[0].past.floats()});
    save_past(first_past_, state, work.front_, rows);
    for (size_t i = 0; i < tail_; ++i) {
        const Past& past = stages_[i].past;
        load_past(past, state, input_of(i));
        run_stage(pool, kernels, stages_[i], state, work, input_of(i), rows,
                  input_of(i + 1) + past_of_stage(i + 1).floats());
        save_past(past, state, input_of(i), rows);
        rows *= stages_[i].rate;
    }
    return rows;
}

// One frame: x [rows], with the stage's past before it -> samples.
void CodecConv::run_tail(Pool& pool, const Kernels& kernels, float* state, Workspace& work,
                         const float* x, int rows, float* audio) const {
    for (size_t i = tail_; i < stages_.size(); ++i) {
        float* out = work.edge_[i % 2];
        const Past& next = past_of_stage(i + 1);
        run_stage(pool, kernels, stages_[i], state, work, x, rows, out + next.floats());
        rows *= stages_[i].rate;
        load_past(next, state, out);
        save_past(next, state, out, rows);
        x = out;
    }
    run(pool, kernels, last_, {.x = x, .rows = rows, .y = audio});
    for (int i = 0; i < rows; ++i) audio[i] = std::clamp(audio[i], -1.0F, 1.0F);
}

void CodecConv::forward(Pool& pool, const Kernels& kernels, float* state, Workspace& work,
                        const float* latent, int frames, float* audio) const {
    const int rows = run_head(pool, kernels, state, work, latent, frames);
    const Past& past = stages_[tail_].past;
    load_past(past, state, work.boundary_);
    const int per_frame = rows / frames;
    for (int f = 0; f < frames; ++f)
        run_tail(pool, kernels, state, work,
                 work.boundary_ + static_cast<ptrdiff_t>(f) * per_frame * past.channels, per_frame,
                 audio + static_cast<ptrdiff_t>(f) * samples_per_frame_);
    save_past(past, state, work.boundary_, rows);
}

}  // namespace qt
