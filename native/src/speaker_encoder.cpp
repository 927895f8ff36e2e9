#include "speaker_encoder.h"

#include <algorithm>
#include <cmath>

#include "status.h"

namespace qt {
namespace {

constexpr int kDilations[] = {2, 3, 4};  // of the three SE-Res2Net blocks
constexpr int kMaxTaps = 64;
constexpr float kSmallestVariance = 1e-12F;

// A convolution of any shape with what comes after it.
Layer any_conv(Pool& pool, const Gguf& file, const std::string& name, Act act, int taps,
               int dilation = 1) {
    const Tensor& w = file.tensor("spk_enc." + name + ".weight", {-1, -1, taps});
    if (w.shape[2] > kMaxTaps)
        file.fail(strf("tensor 'spk_enc.%s.weight' has %lld taps, at most %d are expected",
                       name.c_str(), static_cast<long long>(w.shape[2]), kMaxTaps));
    Layer layer = load_conv(pool, file, "spk_enc." + name, static_cast<int>(w.shape[0]),
                            static_cast<int>(w.shape[1]), static_cast<int>(w.shape[2]), true);
    layer.act = act;
    layer.dilation = dilation;
    return layer;
}

void expect_channels(const Gguf& file, const char* name, int has, int expected) {
    if (has != expected)
        file.fail(strf("tensor 'spk_enc.%s' has %d channels, expected %d", name, has, expected));
}

// Columns [first, first + k) of a kernel-1 convolution, without bias.
Layer columns(Pool& pool, const Tensor& w, int first, int k) {
    const std::vector<float> all = to_floats(w);
    const auto width = static_cast<size_t>(w.shape[1]);
    Layer layer;
    layer.c_in = k;
    layer.w =
        pack_filled(pool, WeightType::f32, static_cast<int>(w.shape[0]), k, [&](int o, float* row) {
            std::copy_n(all.data() + static_cast<size_t>(o) * width + first, k, row);
        });
    return layer;
}

// Mean and standard deviation of channel c over time, with weights that sum to 1.
template <typename Weight>
void statistics(const std::vector<float>& x, int channels, int c, const Weight& weight, float* mean,
                float* deviation) {
    const size_t frames = x.size() / static_cast<size_t>(channels);
    double sum = 0;
    for (size_t t = 0; t < frames; ++t)
        sum += weight(t) * x[t * static_cast<size_t>(channels) + static_cast<size_t>(c)];
    double squares = 0;
    for (size_t t = 0; t < frames; ++t) {
        const double d = x[t * static_cast<size_t>(channels) + static_cast<size_t>(c)] - sum;
        squares += weight(t) * d * d;
    }
    *mean = static_cast<float>(sum);
    *deviation = std::sqrt(std::max(static_cast<float>(squares), kSmallestVariance));
}

}  // namespace

SpeakerEncoder::SpeakerEncoder(const Gguf& file, Pool& pool) {
    first_ = any_conv(pool, file, "conv0", Act::relu, -1);
    expect_channels(file, "conv0.weight", first_.c_in, MelSpectrogram::kBands);
    const int channels = first_.n();
    for (int b = 0; b < 3; ++b) {
        const std::string name = strf("blk.%d.", b + 1);
        Block block;
        block.tdnn1 = any_conv(pool, file, name + "tdnn1", Act::relu, 1);
        for (int i = 0; file.find(strf("spk_enc.%sres2net.%d.weight", name.c_str(), i)); ++i)
            block.branches.push_back(any_conv(pool, file, strf("%sres2net.%d", name.c_str(), i),
                                              Act::relu, -1, kDilations[b]));
        block.tdnn2 = any_conv(pool, file, name + "tdnn2", Act::relu, 1);
        block.squeeze = any_conv(pool, file, name + "se.conv1", Act::relu, 1);
        block.excite = any_conv(pool, file, name + "se.conv2", Act::sigmoid, 1);
        const int slices = static_cast<int>(block.branches.size()) + 1;
        for (const Layer& l : block.branches) {
            expect_channels(file, (name + "res2net").c_str(), l.c_in * slices, channels);
            expect_channels(file, (name + "res2net").c_str(), l.n(), l.c_in);
        }
        for (const Layer* l : {&block.tdnn1, &block.tdnn2}) {
            expect_channels(file, (name + "tdnn").c_str(), l->c_in, channels);
            expect_channels(file, (name + "tdnn").c_str(), l->n(), channels);
        }
        expect_channels(file, (name + "se.conv1").c_str(), block.squeeze.c_in, channels);
        expect_channels(file, (name + "se.conv2").c_str(), block.excite.c_in, block.squeeze.n());
        expect_channels(file, (name + "se.conv2").c_str(), block.excite.n(), channels);
        blocks_.push_back(std::move(block));
    }
    mfa_ = any_conv(pool, file, "mfa", Act::relu, 1);
    expect_channels(file, "mfa.weight", mfa_.c_in, 3 * channels);
    const int wide = mfa_.n();
    const Tensor& attention = file.tensor("spk_enc.asp.tdnn.weight", {-1, 3 * wide, 1});
    attention_x_ = columns(pool, attention, 0, wide);
    attention_statistics_ = columns(pool, attention, wide, 2 * wide);
    attention_statistics_.bias =
        load_vector(file, "spk_enc.asp.tdnn.bias", attention_statistics_.n());
    attention_out_ = any_conv(pool, file, "asp.conv", Act::none, 1);
    expect_channels(file, "asp.conv.weight", attention_out_.c_in, attention_x_.n());
    expect_channels(file, "asp.conv.weight", attention_out_.n(), wide);
    fc_ = any_conv(pool, file, "fc", Act::none, 1);
    expect_channels(file, "fc.weight", fc_.c_in, 2 * wide);
}

int SpeakerEncoder::min_samples() const {
    int pad = first_.history() / 2;
    for (const Block& block : blocks_)
        for (const Layer& l : block.branches) pad = std::max(pad, (l.history() + 1) / 2);
    return std::max(MelSpectrogram::kMinSamples, (pad + 1) * MelSpectrogram::kHop);
}

SpeakerEncoder::Rows SpeakerEncoder::same(Pool& pool, const Layer& layer, const Rows& x) const {
    const int channels = layer.c_in;
    const int frames = static_cast<int>(x.size()) / channels;
    Rows y(static_cast<size_t>(frames) * layer.n());
    if (layer.history() == 0) {
        run(pool, kernels(), layer, {.x = x.data(), .rows = frames, .z = y.data()});
        return y;
    }
    Rows padded(static_cast<size_t>(frames + layer.history()) * channels);
    for (int t = 0; t < frames + layer.history(); ++t) {
        int from = std::abs(t - layer.history() / 2);
        if (from >= frames) from = 2 * (frames - 1) - from;
        std::copy_n(x.data() + static_cast<ptrdiff_t>(from) * channels, channels,
                    padded.data() + static_cast<ptrdiff_t>(t) * channels);
    }
    run(pool, kernels(), layer, {.x = padded.data(), .rows = frames, .z = y.data()});
    return y;
}

// Slices of the channels: the first passes, each other one is convolved with its left neighbour's
// result added.
SpeakerEncoder::Rows SpeakerEncoder::res2net(Pool& pool, const Block& block, const Rows& x) const {
    if (block.branches.empty()) return x;
    const int width = block.branches.front().c_in;
    const int channels = width * (static_cast<int>(block.branches.size()) + 1);
    const int frames = static_cast<int>(x.size()) / channels;
    Rows out = x;
    Rows slice(static_cast<size_t>(frames) * width);
    for (size_t i = 0; i < block.branches.size(); ++i) {
        const auto at = [&](Rows& rows, int t) {
            return rows.data() + static_cast<ptrdiff_t>(t) * channels +
                   static_cast<ptrdiff_t>(i + 1) * width;
        };
        for (int t = 0; t < frames; ++t) {
            float* row = slice.data() + static_cast<ptrdiff_t>(t) * width;
            if (i == 0)
                std::copy_n(at(out, t), width, row);
            else
                kernels().add(at(out, t), width, row);  // onto the neighbour's result
        }
        slice = same(pool, block.branches[i], slice);
        for (int t = 0; t < frames; ++t)
            std::copy_n(slice.data() + static_cast<ptrdiff_t>(t) * width, width, at(out, t));
    }
    return out;
}

SpeakerEncoder::Rows SpeakerEncoder::se_res2net(Pool& pool, const Block& block,
                                                const Rows& x) const {
    Rows y = same(pool, block.tdnn2, res2net(pool, block, same(pool, block.tdnn1, x)));
    const auto channels = static_cast<size_t>(block.tdnn2.n());
    const size_t frames = y.size() / channels;
    std::vector<double> sum(channels);
    for (size_t i = 0; i < y.size(); ++i) sum[i % channels] += y[i];
    Rows mean(channels);
    for (size_t c = 0; c < channels; ++c)
        mean[c] = static_cast<float>(sum[c] / static_cast<double>(frames));
    const Rows gate = same(pool, block.excite, same(pool, block.squeeze, mean));
    for (size_t t = 0; t < frames; ++t)
        for (size_t c = 0; c < channels; ++c) {
            const size_t i = t * channels + c;
            y[i] = y[i] * gate[c] + x[i];
        }
    return y;
}

// x [T, C] -> [mean, deviation] under a learned attention over time, per channel.
SpeakerEncoder::Rows SpeakerEncoder::pool_statistics(Pool& pool, const Rows& x) const {
    const int channels = mfa_.n();
    const size_t frames = x.size() / static_cast<size_t>(channels);
    Rows plain(2 * static_cast<size_t>(channels));
    const double each = 1.0 / static_cast<double>(frames);
    pool.parallel_for(channels, [&](int c, int) {
        statistics(
            x, channels, c, [&](size_t) { return each; }, &plain[static_cast<size_t>(c)],
            &plain[static_cast<size_t>(channels + c)]);
    });
    Rows constant(static_cast<size_t>(attention_statistics_.n()));
    run(pool, kernels(), attention_statistics_,
        {.x = plain.data(), .rows = 1, .y = constant.data()});
    Rows hidden(frames * constant.size());
    run(pool, kernels(), attention_x_,
        {.x = x.data(), .rows = static_cast<int>(frames), .y = hidden.data()});
    for (size_t i = 0; i < hidden.size(); ++i)
        hidden[i] = std::max(hidden[i] + constant[i % constant.size()], 0.0F);
    kernels().activate(Act::tanh, hidden.data(), nullptr, nullptr, static_cast<int>(hidden.size()),
                       hidden.data());
    const Rows scores = same(pool, attention_out_, hidden);
    Rows out(plain.size());
    pool.parallel_for(channels, [&](int c, int) {
        std::vector<float> weight(frames);
        for (size_t t = 0; t < frames; ++t)
            weight[t] = scores[t * static_cast<size_t>(channels) + static_cast<size_t>(c)];
        kernels().softmax(weight.data(), static_cast<int>(frames));
        statistics(
            x, channels, c, [&](size_t t) { return static_cast<double>(weight[t]); },
            &out[static_cast<size_t>(c)], &out[static_cast<size_t>(channels + c)]);
    });
    return out;
}

std::vector<float> SpeakerEncoder::operator()(Pool& pool, const float* audio, int n_samples,
                                              const Breath& breathe) const {
    if (n_samples < min_samples())
        fail_params(strf("reference audio: %d samples are too few, at least %d are needed",
                         n_samples, min_samples()));
    Rows x = same(pool, first_, mel_(pool, audio, n_samples));
    const auto channels = static_cast<size_t>(first_.n());
    const size_t frames = x.size() / channels;
    Rows all(frames * channels * blocks_.size());
    for (size_t b = 0; b < blocks_.size(); ++b) {
        breathe();
        x = se_res2net(pool, blocks_[b], x);
        for (size_t t = 0; t < frames; ++t)
            std::copy_n(x.data() + t * channels, channels,
                        all.data() + (t * blocks_.size() + b) * channels);
    }
    breathe();
    return same(pool, fc_, pool_statistics(pool, same(pool, mfa_, all)));
}

}  // namespace qt
