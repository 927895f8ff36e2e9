#include "codec_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "status.h"

namespace qt {
namespace {

// Rows of the slowest rate per piece of the convolutional part: the buffers at 24 kHz stay small
// (5 MB), while the large weights of the last stage are read once for all of them.
constexpr int kPieceRows = 20;

constexpr int kMaxSamplesPerRow = 1 << 16;  // a bound for damaged files

int up_to_multiple(int n, int of) {
    return (n + of - 1) / of * of;
}

}  // namespace

// Input rows of each convolution that the next piece needs, with room for that piece behind them.
struct CodecEncoder::Past {
    struct Buffer {
        Buffer(const Layer& layer, int input_rows)
            : past(layer.history() + 1 - layer.stride),
              channels(layer.c_in),
              rows(static_cast<size_t>(past + input_rows) * channels) {}
        float* begin() { return rows.data(); }
        float* fresh() { return rows.data() + static_cast<ptrdiff_t>(past) * channels; }
        // Keeps the end of past + n rows for the next piece.
        void keep(int n) {
            std::memmove(rows.data(), rows.data() + static_cast<ptrdiff_t>(n) * channels,
                         static_cast<size_t>(past) * channels * sizeof(float));
        }
        void clear_behind(int from, int to) {
            std::fill(fresh() + static_cast<ptrdiff_t>(from) * channels,
                      fresh() + static_cast<ptrdiff_t>(to) * channels, 0.0F);
        }
        int past, channels;
        Rows rows;
    };
    struct StageBuffers {
        Buffer narrow, down;
        Rows x, middle;
    };

    Past(const CodecEncoder& e, int samples)
        : first(e.first_, samples), last(e.last_, samples / e.samples_per_row_) {
        int rows = samples;
        for (const Stage& s : e.stages_) {
            stages.push_back({Buffer(s.narrow, rows), Buffer(s.down, rows),
                              Rows(static_cast<size_t>(rows) * s.narrow.c_in),
                              Rows(static_cast<size_t>(rows) * s.narrow.n())});
            rows /= s.down.stride;
        }
    }

    Buffer first, last;
    std::vector<StageBuffers> stages;
};

CodecEncoder::CodecEncoder(const Gguf& file, Pool& pool) {
    const std::string key = "qwen3-tts-tokenizer.";
    const std::string enc = key + "encoder.";
    hidden_ = file.integer(enc + "hidden_size", 1, 1 << 16);
    groups_ = file.integer(key + "encoder_valid_num_quantizers", 2, 256);
    codebook_size_ = file.integer(enc + "codebook_size", 1, 1 << 20);
    codebook_dim_ = file.integer(enc + "codebook_dim", 1, 1 << 16);
    samples_per_frame_ = file.integer(key + "encode_downsample_rate", 1, 1 << 24);
    load_stages(file, pool);
    transformer_ = std::make_unique<EncoderTransformer>(file, pool, hidden_);
    down_ = load_conv(pool, file, "tok_enc.downsample", hidden_, hidden_, 4, false);
    down_.stride = 2;
    if (samples_per_row_ * down_.stride != samples_per_frame_)
        file.fail(strf("encode_downsample_rate is %d, but the strides make %d", samples_per_frame_,
                       samples_per_row_ * down_.stride));
    semantic_ = load_quantizer(file, pool, "semantic", 1);
    acoustic_ = load_quantizer(file, pool, "acoustic", groups_ - 1);
}

void CodecEncoder::load_stages(const Gguf& file, Pool& pool) {
    const std::string enc = "qwen3-tts-tokenizer.encoder.";
    const int taps = file.integer(enc + "kernel_size", 1, 64);
    const int unit_taps = file.integer(enc + "residual_kernel_size", 1, 64);
    const int last_taps = file.integer(enc + "last_kernel_size", 1, 64);
    const int compress = file.integer(enc + "compress", 1, 64);
    int channels = file.integer(enc + "num_filters", 1, 1 << 14);
    std::vector<int32_t> ratios = file.integers(enc + "upsampling_ratios");
    if (ratios.empty() || ratios.size() > 8)
        file.fail(strf("%supsampling_ratios has %zu entries", enc.c_str(), ratios.size()));
    std::reverse(ratios.begin(), ratios.end());  // they are those of the way back

    first_ = load_conv(pool, file, "tok_enc.conv.0", channels, 1, taps, true);
    first_.act = Act::elu;
    int index = 1;  // of the module in the official package's list, where activations count too
    for (const int ratio : ratios) {
        if (ratio < 1 || ratio > 64 || channels > 1 << 16 || channels % compress != 0)
            file.fail(strf("%supsampling_ratios: %d for %d channels does not work", enc.c_str(),
                           ratio, channels));
        Stage s;
        const std::string unit = strf("tok_enc.res.%d.blk.", index);
        s.narrow =
            load_conv(pool, file, unit + "1", channels / compress, channels, unit_taps, true);
        s.narrow.act = Act::elu;
        s.widen = load_conv(pool, file, unit + "3", channels, channels / compress, 1, true);
        s.widen.act = Act::elu;
        s.down = load_conv(pool, file, strf("tok_enc.conv.%d", index + 2), 2 * channels, channels,
                           2 * ratio, true);
        s.down.stride = ratio;
        s.down.act = Act::elu;
        stages_.push_back(std::move(s));
        samples_per_row_ *= ratio;
        if (samples_per_row_ > kMaxSamplesPerRow)
            file.fail(strf("%supsampling_ratios make more than %d samples per row", enc.c_str(),
                           kMaxSamplesPerRow));
        channels *= 2;
        index += 3;
    }
    last_ = load_conv(pool, file, strf("tok_enc.conv.%d", index + 1), hidden_, channels, last_taps,
                      true);
}

CodecEncoder::Quantizer CodecEncoder::load_quantizer(const Gguf& file, Pool& pool,
                                                     const std::string& name, int books) const {
    Quantizer q;
    const std::string prefix = "tok_enc.vq_" + name + ".";
    q.input = load_conv(pool, file, prefix + "input_proj", codebook_dim_, hidden_, 1, false);
    q.owned.reserve(static_cast<size_t>(books));
    for (int i = 0; i < books; ++i) {
        const Tensor& t =
            file.tensor(strf("%s%d.codebook", prefix.c_str(), i), {codebook_size_, codebook_dim_});
        if (const float* mapped = mapped_floats(t)) {
            q.books.push_back(mapped);
        } else {
            q.owned.push_back(to_floats(t));
            q.books.push_back(q.owned.back().data());
        }
    }
    return q;
}

// n_samples: a multiple of samples_per_row_ but in the last piece. Every strided convolution pads
// its own input with zeros up to a multiple of its stride.
void CodecEncoder::convolve_piece(Pool& pool, Past& past, const float* audio, int n_samples,
                                  Rows& out) const {
    const Kernels& k = kernels();
    int rows = n_samples;
    std::copy_n(audio, n_samples, past.first.fresh());
    run(pool, k, first_,
        {.x = past.first.begin(),
         .rows = rows,
         .y = past.stages[0].x.data(),
         .z = past.stages[0].narrow.fresh()});
    past.first.keep(rows);
    for (size_t i = 0; i < stages_.size(); ++i) {
        const Stage& s = stages_[i];
        Past::StageBuffers& b = past.stages[i];
        run(pool, k, s.narrow, {.x = b.narrow.begin(), .rows = rows, .z = b.middle.data()});
        b.narrow.keep(rows);
        run(pool, k, s.widen,
            {.x = b.middle.data(), .rows = rows, .z = b.down.fresh(), .residual = b.x.data()});
        const int whole = up_to_multiple(rows, s.down.stride);
        b.down.clear_behind(rows, whole);
        rows = whole / s.down.stride;
        const bool final = i + 1 == stages_.size();
        run(pool, k, s.down,
            {.x = b.down.begin(),
             .rows = rows,
             .y = final ? nullptr : past.stages[i + 1].x.data(),
             .z = final ? past.last.fresh() : past.stages[i + 1].narrow.fresh()});
        b.down.keep(whole);
    }
    const size_t at = out.size();
    out.resize(at + static_cast<size_t>(rows) * hidden_);
    run(pool, k, last_, {.x = past.last.begin(), .rows = rows, .y = out.data() + at});
    past.last.keep(rows);
}

CodecEncoder::Rows CodecEncoder::convolve(Pool& pool, const float* audio, int n_samples,
                                          const Breath& breathe) const {
    const int piece = kPieceRows * samples_per_row_;
    Past past(*this, std::min(piece, up_to_multiple(n_samples, samples_per_row_)));
    Rows out;
    out.reserve(static_cast<size_t>(n_samples / samples_per_row_ + 1) * hidden_);
    for (int at = 0; at < n_samples; at += piece) {
        breathe();
        convolve_piece(pool, past, audio + at, std::min(piece, n_samples - at), out);
    }
    return out;
}

// Kernel 4, stride 2, the first row repeated twice before and the last once behind an odd count.
CodecEncoder::Rows CodecEncoder::downsample(Pool& pool, const Rows& x) const {
    const int rows = static_cast<int>(x.size()) / hidden_;
    const int left = down_.taps - down_.stride;
    const int out_rows = (rows + down_.stride - 1) / down_.stride;
    const int padded_rows = out_rows * down_.stride + left;
    Rows padded(static_cast<size_t>(padded_rows) * hidden_);
    for (int t = 0; t < padded_rows; ++t)
        std::copy_n(x.data() + static_cast<ptrdiff_t>(std::clamp(t - left, 0, rows - 1)) * hidden_,
                    hidden_, padded.data() + static_cast<ptrdiff_t>(t) * hidden_);
    Rows y(static_cast<size_t>(out_rows) * hidden_);
    run(pool, kernels(), down_, {.x = padded.data(), .rows = out_rows, .y = y.data()});
    return y;
}

// The entry of `book` nearest to x, the first of equals. scores[i] = x.e_i - |e_i|^2 / 2, which is
// largest for the nearest up to rounding: whatever comes within `margin` is measured exactly.
int CodecEncoder::nearest(const float* book, const float* x, const float* scores,
                          float margin) const {
    const float threshold = *std::max_element(scores, scores + codebook_size_) - margin;
    double least = INFINITY;
    int found = 0;
    for (int i = 0; i < codebook_size_; ++i) {
        if (scores[i] < threshold) continue;
        const float* entry = book + static_cast<ptrdiff_t>(i) * codebook_dim_;
        double distance = 0;
        for (int c = 0; c < codebook_dim_; ++c) {
            const double d = static_cast<double>(x[c]) - static_cast<double>(entry[c]);
            distance += d * d;
        }
        if (distance < least) {
            least = distance;
            found = i;
        }
    }
    return found;
}

// Book after book for all frames: each subtracts its nearest entry before the next looks.
void CodecEncoder::quantize(Pool& pool, const Quantizer& quantizer, const Rows& x, int n, int first,
                            int32_t* codes, const Breath& breathe) const {
    // Of the score's size; fp32 sums of a few hundred terms are 10 to 100 times better.
    constexpr float kMargin = 1e-4F;
    const auto dim = static_cast<size_t>(codebook_dim_);
    Rows rest(static_cast<size_t>(n) * dim);
    Rows scores(static_cast<size_t>(n) * static_cast<size_t>(codebook_size_));
    run(pool, kernels(), quantizer.input, {.x = x.data(), .rows = n, .y = rest.data()});
    for (size_t b = 0; b < quantizer.books.size(); ++b) {
        breathe();
        const float* book = quantizer.books[b];
        // Packed on the spot: kept, the books would take 34 MB between rare calls.
        Layer layer;
        layer.c_in = codebook_dim_;
        layer.w = pack_filled(
            pool, WeightType::f32, codebook_size_, codebook_dim_,
            [&](int i, float* row) { std::copy_n(book + static_cast<size_t>(i) * dim, dim, row); });
        float largest = 0;
        for (int i = 0; i < codebook_size_; ++i) {
            const float* entry = book + static_cast<size_t>(i) * dim;
            const float square = kernels().dot(entry, entry, codebook_dim_);
            layer.bias.push_back(-square / 2);
            largest = std::max(largest, square);
        }
        run(pool, kernels(), layer, {.x = rest.data(), .rows = n, .y = scores.data()});
        pool.parallel_for(n, [&](int t, int) {
            float* r = rest.data() + static_cast<size_t>(t) * dim;
            const float size = std::sqrt(largest * kernels().dot(r, r, codebook_dim_)) + largest;
            const int i =
                nearest(book, r, scores.data() + static_cast<ptrdiff_t>(t) * codebook_size_,
                        kMargin * size);
            for (size_t c = 0; c < dim; ++c) r[c] -= book[static_cast<size_t>(i) * dim + c];
            codes[static_cast<ptrdiff_t>(t) * groups_ + first + static_cast<ptrdiff_t>(b)] = i;
        });
    }
}

std::vector<int32_t> CodecEncoder::operator()(Pool& pool, const float* audio, int n_samples,
                                              const Breath& breathe) const {
    if (n_samples < 1) fail_params("reference audio: there are no samples");
    Rows x = convolve(pool, audio, n_samples, breathe);
    transformer_->forward(pool, kernels(), x.data(), static_cast<int>(x.size()) / hidden_, breathe);
    x = downsample(pool, x);
    const int n = std::min(frames(n_samples), static_cast<int>(x.size()) / hidden_);
    std::vector<int32_t> codes(static_cast<size_t>(n) * groups_);
    quantize(pool, semantic_, x, n, 0, codes.data(), breathe);
    quantize(pool, acoustic_, x, n, 1, codes.data(), breathe);
    return codes;
}

}  // namespace qt
