#include "engine.h"

#include "status.h"

namespace qt {
namespace {

// A dozen voices of 0.6B with short references, and their codec states.
constexpr size_t kVoiceCacheBytes = size_t{128} << 20;

void check_architecture(const Gguf& file, const char* expected, const char* field) {
    const std::string_view have = file.string("general.architecture");
    if (have != expected)
        file.fail(std::string("key 'general.architecture' is '") + std::string(have.substr(0, 40)) +
                  "', " + field + " needs '" + expected + "'");
}

const Gguf& checked_talker(const Gguf& file) {
    check_architecture(file, "qwen3-tts", "talker_path");
    return file;
}

const Gguf& checked_codec(const Gguf& file) {
    check_architecture(file, "qwen3-tts-tokenizer", "codec_path");
    return file;
}

Tokenizer read_tokenizer(const Gguf& file) {
    const auto tokens = file.strings("tokenizer.ggml.tokens");
    const auto merges = file.strings("tokenizer.ggml.merges");
    return Tokenizer(std::vector<std::string>(tokens.begin(), tokens.end()),
                     std::vector<std::string>(merges.begin(), merges.end()), file.path());
}

}  // namespace

void make_fast(EngineOptions& options) {
    // The predictor is 15 times as many bytes as its size, the talker decides what is said:
    // docs/ENGINE.md has the table behind these numbers.
    options.talker = {Bits::five, Bits::six};
    options.predictor = {Bits::four, Bits::four};
}

Engine::Engine(const EngineOptions& o)
    : options(o),
      talker_file(o.talker_path),
      codec_file(o.codec_path),
      pool(o.n_threads > 0 ? o.n_threads : usable_cores()),
      info(checked_talker(talker_file)),
      tokenizer(read_tokenizer(talker_file)),
      codes(talker_file, talker_file.integer("qwen3-tts.talker.embedding_length", 8, 1 << 16),
            info.codec_vocab, info.codes),
      talker(pool, talker_file, info, o.kv_size, o.talker),
      predictor(pool, talker_file, codes, o.predictor),
      prompts(pool, info, talker, codes),
      decoder(checked_codec(codec_file), pool),
      decoder_work(decoder),
      voices(talker.shape(), !talker.exact(), kVoiceCacheBytes) {
    if (decoder.groups() != kCodebooks || decoder.codebook_size() < info.codes)
        codec_file.fail(strf("the codec has %d codebooks of %d, the talker makes %d of %d",
                             decoder.groups(), decoder.codebook_size(), kCodebooks, info.codes));
    if (decoder.samples_per_frame() != QT_SAMPLES_PER_FRAME ||
        decoder.sample_rate() != QT_SAMPLE_RATE)
        codec_file.fail(
            strf("the codec makes %d samples per frame at %d Hz; %d at %d are supported",
                 decoder.samples_per_frame(), decoder.sample_rate(), QT_SAMPLES_PER_FRAME,
                 QT_SAMPLE_RATE));
    talker_file.release();
    codec_file.release();
}

FrameCost Engine::frame_cost() const {
    FrameCost cost;
    cost.talker_bytes = talker.weight_bytes();
    cost.predictor_bytes = predictor.weight_bytes();
    decoder.add_cost(cost);
    return cost;
}

VoiceInput Engine::encode_voice(const float* audio, int n_samples, bool with_codes,
                                const Breath& breathe) {
    if (!speaker_encoder) {
        speaker_encoder = std::make_unique<SpeakerEncoder>(talker_file, pool);
        if (speaker_encoder->dim() != talker.hidden())
            talker_file.fail(
                strf("the speaker encoder makes vectors of %d values, the talker takes %d",
                     speaker_encoder->dim(), talker.hidden()));
    }
    VoiceInput voice;
    voice.embedding = (*speaker_encoder)(pool, audio, n_samples, breathe);
    if (!with_codes) return voice;
    if (!codec_encoder) {
        codec_encoder = std::make_unique<CodecEncoder>(codec_file, pool);
        if (codec_encoder->groups() != kCodebooks)
            codec_file.fail(
                strf("the codec's encoder has %d codebooks, not 16", codec_encoder->groups()));
    }
    voice.codes = (*codec_encoder)(pool, audio, n_samples, breathe);
    voice.frames = codec_encoder->frames(n_samples);
    return voice;
}

}  // namespace qt
