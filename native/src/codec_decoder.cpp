#include "codec_decoder.h"

#include <algorithm>
#include <cstring>

#include "status.h"

namespace qt {
namespace {

// Frames the transformer takes at once: its weights are read once for all of them.
constexpr int kFrontStep = WindowTransformer::kMaxRows;

}  // namespace

CodecDecoder::Workspace::Workspace(const CodecDecoder& d)
    : conv_(*d.conv_, kMaxStep),
      first_(static_cast<size_t>(kFrontStep) * d.codebook_dim_),
      rest_(first_.size()),
      pre_(static_cast<size_t>(kFrontStep + d.pre_conv_.history()) * d.pre_conv_.c_in),
      projected_(static_cast<size_t>(kFrontStep) * d.latent_),
      latent_(projected_.size()),
      scratch_(d.transformer_->scratch_floats(kFrontStep)) {}

CodecDecoder::CodecDecoder(const Gguf& file, Pool& pool) {
    const std::string key = "qwen3-tts-tokenizer.";
    const std::string dec = key + "decoder.";
    groups_ = file.integer(dec + "num_quantizers", 2, 256);
    codebook_size_ = file.integer(dec + "codebook_size", 1, 1 << 20);
    sample_rate_ = file.integer(key + "output_sample_rate", 1, 1 << 20);
    latent_ = file.integer(dec + "latent_dim", 1, 1 << 16);
    load_codebooks(file);

    const std::string name = "tok_dec.";
    const int wide =
        static_cast<int>(file.tensor(name + "vq_first.output_proj.weight", {-1, -1, 1}).shape[0]);
    first_proj_ =
        load_conv(pool, file, name + "vq_first.output_proj", wide, codebook_dim_, 1, false);
    rest_proj_ = load_conv(pool, file, name + "vq_rest.output_proj", wide, codebook_dim_, 1, false);
    pre_conv_ = load_conv(pool, file, name + "pre_conv", latent_, wide, 3, true);
    transformer_ = std::make_unique<WindowTransformer>(file, pool, latent_);
    conv_ = std::make_unique<CodecConv>(file, pool, latent_);
    samples_per_frame_ = conv_->samples_per_frame();
    const int stated = file.integer(key + "decode_upsample_rate", 1, 1 << 24);
    if (stated != samples_per_frame_)
        file.fail(strf("decode_upsample_rate is %d, but the upsampling factors make %d", stated,
                       samples_per_frame_));
}

void CodecDecoder::load_codebooks(const Gguf& file) {
    codebook_dim_ =
        static_cast<int>(file.tensor("tok_dec.vq_first.0.codebook", {codebook_size_, -1}).shape[1]);
    owned_codebooks_.reserve(static_cast<size_t>(groups_));
    for (int g = 0; g < groups_; ++g) {
        const std::string name =
            g == 0 ? "tok_dec.vq_first.0.codebook" : strf("tok_dec.vq_rest.%d.codebook", g - 1);
        const Tensor& t = file.tensor(name, {codebook_size_, codebook_dim_});
        if (const float* mapped = mapped_floats(t)) {
            codebooks_.push_back(mapped);
        } else {
            owned_codebooks_.push_back(to_floats(t));
            codebooks_.push_back(owned_codebooks_.back().data());
        }
    }
}

CodecState CodecDecoder::new_state() const {
    CodecState state;
    state.cache = transformer_->new_cache();
    state.conv.resize(conv_->state_floats());
    state.front.resize(static_cast<size_t>(pre_conv_.history()) * pre_conv_.c_in);
    return state;
}

void CodecDecoder::add_cost(FrameCost& cost) const {
    for (const Layer* layer : {&first_proj_, &rest_proj_, &pre_conv_}) {
        cost.codec_mul_adds += layer->mul_adds(1);
        cost.codec_bytes += layer->weight_bytes();
    }
    transformer_->add_cost(cost);
    conv_->add_cost(cost);
}

void CodecDecoder::check_codes(const int32_t* codes, int frames) const {
    for (int64_t i = 0; i < int64_t{frames} * groups_; ++i)
        if (codes[i] < 0 || codes[i] >= codebook_size_)
            fail_params(strf("codes: frame %lld, codebook %lld holds %d, expected 0 to %d",
                             static_cast<long long>(i / groups_),
                             static_cast<long long>(i % groups_), codes[i], codebook_size_ - 1));
}

void CodecDecoder::front(Pool& pool, CodecState& state, Workspace& work, const int32_t* codes,
                         int frames) const {
    const auto dim = static_cast<size_t>(codebook_dim_);
    for (int t = 0; t < frames; ++t) {
        const int32_t* code = codes + static_cast<ptrdiff_t>(t) * groups_;
        float* sum = work.rest_.data() + static_cast<size_t>(t) * dim;
        std::memcpy(work.first_.data() + static_cast<size_t>(t) * dim,
                    codebooks_[0] + static_cast<size_t>(code[0]) * dim, dim * sizeof(float));
        std::fill(sum, sum + dim, 0.0F);
        for (int g = 1; g < groups_; ++g)
            kernels().add(codebooks_[static_cast<size_t>(g)] + static_cast<size_t>(code[g]) * dim,
                          codebook_dim_, sum);
    }
    const Kernels& k = kernels();
    float* rows = work.pre_.data() + state.front.size();
    std::copy(state.front.begin(), state.front.end(), work.pre_.begin());
    run(pool, k, first_proj_, {.x = work.first_.data(), .rows = frames, .y = rows});
    run(pool, k, rest_proj_, {.x = work.rest_.data(), .rows = frames, .y = rows, .residual = rows});
    run(pool, k, pre_conv_, {.x = work.pre_.data(), .rows = frames, .y = work.projected_.data()});
    std::copy_n(work.pre_.data() + static_cast<ptrdiff_t>(frames) * pre_conv_.c_in,
                state.front.size(), state.front.begin());
    transformer_->forward(pool, k, state.cache, work.projected_.data(), frames, work.latent_.data(),
                          work.scratch_.data());
}

void CodecDecoder::decode(Pool& pool, CodecState& state, Workspace& work, const int32_t* codes,
                          int frames, float* audio) const {
    check_codes(codes, frames);
    for (int t = 0; t < frames; t += kFrontStep) {
        const int block = std::min(kFrontStep, frames - t);
        front(pool, state, work, codes + static_cast<ptrdiff_t>(t) * groups_, block);
        for (int f = 0; f < block; f += kMaxStep)
            conv_->forward(pool, kernels(), state.conv.data(), work.conv_,
                           work.latent_.data() + static_cast<ptrdiff_t>(f) * latent_,
                           std::min(kMaxStep, block - f),
                           audio + static_cast<ptrdiff_t>(t + f) * samples_per_frame_);
    }
}

int CodecDecoder::unheard_frames(int frames) const {
    // From a state of zeros, the convolutions forget where they began after so many frames.
    return std::max(0, frames - conv_->receptive_frames());
}

void CodecDecoder::prime(Pool& pool, CodecState& state, Workspace& work, const int32_t* codes,
                         int frames, int first, int end) const {
    check_codes(codes, frames);
    std::vector<float> audio(static_cast<size_t>(kMaxStep) * samples_per_frame_);
    const int unheard = unheard_frames(frames);
    for (int t = first; t < end; t += kFrontStep) {
        const int block = std::min(kFrontStep, end - t);
        front(pool, state, work, codes + static_cast<ptrdiff_t>(t) * groups_, block);
        for (int f = std::max(0, unheard - t); f < block; f += kMaxStep)
            conv_->forward(pool, kernels(), state.conv.data(), work.conv_,
                           work.latent_.data() + static_cast<ptrdiff_t>(f) * latent_,
                           std::min(kMaxStep, block - f), audio.data());
    }
}

}  // namespace qt
