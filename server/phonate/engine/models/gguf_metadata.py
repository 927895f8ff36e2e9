"""The metadata of the two GGUF files, from the configurations of a checkpoint.

A list of (key, value type, value); value types are GGUF's: u32, f32, bool, str, and arrays of
i32 or str. Arrays of integers are 32 bits wide because an existing loader reads nothing else.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from phonate.engine.models.checkpoint import Tokenizer
from phonate.engine.models.talker_tensors import Config
from phonate.errors import SetupError

Entry: TypeAlias = tuple[str, str, Any]

TALKER = "qwen3-tts"
CODEC = "qwen3-tts-tokenizer"

_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4
"""tokenizer.ggml.token_type."""

_BLOCK_KEYS = (
    ("embedding_length", "u32", "hidden_size"),
    ("feed_forward_length", "u32", "intermediate_size"),
    ("block_count", "u32", "num_hidden_layers"),
    ("attention.head_count", "u32", "num_attention_heads"),
    ("attention.head_count_kv", "u32", "num_key_value_heads"),
    ("attention.key_length", "u32", "head_dim"),
    ("vocab_size", "u32", "vocab_size"),
    ("context_length", "u32", "max_position_embeddings"),
    ("rope.freq_base", "f32", "rope_theta"),
    ("attention.layer_norm_rms_epsilon", "f32", "rms_norm_eps"),
)
_CODEC_IDS = (
    ("pad_id", "codec_pad_id"),
    ("bos_id", "codec_bos_id"),
    ("eos_id", "codec_eos_token_id"),
    ("think_id", "codec_think_id"),
    ("nothink_id", "codec_nothink_id"),
    ("think_bos_id", "codec_think_bos_id"),
    ("think_eos_id", "codec_think_eos_id"),
)
_TEXT_IDS = ("im_start", "im_end", "tts_pad", "tts_bos", "tts_eos")
_GENERATION = (
    ("do_sample", "bool", "do_sample", True),
    ("top_k", "u32", "top_k", 50),
    ("top_p", "f32", "top_p", 1.0),
    ("temperature", "f32", "temperature", 0.9),
    ("repetition_penalty", "f32", "repetition_penalty", 1.05),
    ("subtalker_do_sample", "bool", "subtalker_dosample", True),
    ("subtalker_top_k", "u32", "subtalker_top_k", 50),
    ("subtalker_top_p", "f32", "subtalker_top_p", 1.0),
    ("subtalker_temperature", "f32", "subtalker_temperature", 0.9),
    ("max_new_tokens", "u32", "max_new_tokens", 2048),
)
"""(key, type, name in generation_config.json, the official package's fall-back)."""

_CODEC_KEYS = (
    "input_sample_rate",
    "output_sample_rate",
    "decode_upsample_rate",
    "encode_downsample_rate",
    "encoder_valid_num_quantizers",
)
_DECODER_KEYS = (
    ("latent_dim", "u32"),
    ("codebook_dim", "u32"),
    ("codebook_size", "u32"),
    ("decoder_dim", "u32"),
    ("hidden_size", "u32"),
    ("intermediate_size", "u32"),
    ("head_dim", "u32"),
    ("num_attention_heads", "u32"),
    ("num_key_value_heads", "u32"),
    ("num_hidden_layers", "u32"),
    ("num_quantizers", "u32"),
    ("num_semantic_quantizers", "u32"),
    ("sliding_window", "u32"),
    ("rms_norm_eps", "f32"),
    ("rope_theta", "f32"),
    ("layer_scale_initial_scale", "f32"),
    ("upsample_rates", "i32[]"),
    ("upsampling_ratios", "i32[]"),
)
_ENCODER_KEYS = (
    ("num_filters", "u32"),
    ("kernel_size", "u32"),
    ("last_kernel_size", "u32"),
    ("residual_kernel_size", "u32"),
    ("num_residual_layers", "u32"),
    ("dilation_growth_rate", "u32"),
    ("compress", "u32"),
    ("hidden_size", "u32"),
    ("intermediate_size", "u32"),
    ("head_dim", "u32"),
    ("num_attention_heads", "u32"),
    ("num_key_value_heads", "u32"),
    ("num_hidden_layers", "u32"),
    ("codebook_dim", "u32"),
    ("codebook_size", "u32"),
    ("num_quantizers", "u32"),
    ("num_semantic_quantizers", "u32"),
    ("upsampling_ratios", "i32[]"),
    ("norm_eps", "f32"),
    ("rope_theta", "f32"),
    ("layer_scale_initial_scale", "f32"),
)


def talker(
    config: Config, generation: Config, tokenizer: Tokenizer, name: str | None = None
) -> list[Entry]:
    """Metadata of the talker file; SetupError names a key that config.json lacks."""
    try:
        return [
            *_talker_head(config, name),
            *_talker_codec(config["talker_config"]),
            *((f"{TALKER}.text.{n}_id", "u32", config[f"{n}_token_id"]) for n in _TEXT_IDS),
            *(
                (f"generation.{key}", kind, generation.get(source, fallback))
                for key, kind, source, fallback in _GENERATION
            ),
            *_tokenizer(tokenizer),
        ]
    except KeyError as error:
        raise _missing("config.json", error) from error


def codec(config: Config) -> list[Entry]:
    """Metadata of the codec file; SetupError names a key that its config.json lacks."""
    try:
        decoder, encoder = config["decoder_config"], config["encoder_config"]
        return [
            ("general.name", "str", "Qwen3-TTS-Tokenizer-12Hz"),
            *((f"{CODEC}.{key}", "u32", config[key]) for key in _CODEC_KEYS),
            *((f"{CODEC}.decoder.{key}", kind, decoder[key]) for key, kind in _DECODER_KEYS),
            (f"{CODEC}.decoder.vector_quantization_hidden_dim", "u32", decoder["codebook_dim"]),
            (f"{CODEC}.decoder.codebook_dim_internal", "u32", decoder["codebook_dim"] // 2),
            *((f"{CODEC}.encoder.{key}", kind, encoder[key]) for key, kind in _ENCODER_KEYS),
            (f"{CODEC}.encoder.vector_quantization_hidden_dim", "u32", encoder["codebook_dim"]),
        ]
    except KeyError as error:
        raise _missing("speech_tokenizer/config.json", error) from error


def _missing(file: str, error: KeyError) -> SetupError:
    return SetupError(f"{file} lacks {error.args[0]!r}. Is it a Qwen3-TTS 12 Hz checkpoint?")


def _talker_head(config: Config, name: str | None) -> list[Entry]:
    talker_config = config["talker_config"]
    size, kind = config["tts_model_size"], config["tts_model_type"]
    entries: list[Entry] = [
        ("general.name", "str", name or f"Qwen3-TTS-12Hz-{size}-{kind}"),
        (f"{TALKER}.tokenizer_type", "str", config["tokenizer_type"]),
        (f"{TALKER}.model_size", "str", size),
        (f"{TALKER}.model_type", "str", kind),
        (f"{TALKER}.num_code_groups", "u32", talker_config["num_code_groups"]),
    ]
    for part, source in (
        ("talker", talker_config),
        ("code_pred", talker_config["code_predictor_config"]),
    ):
        entries += [(f"{TALKER}.{part}.{key}", t, source[key_in]) for key, t, key_in in _BLOCK_KEYS]
    rope = talker_config["rope_scaling"]
    entries += [
        (f"{TALKER}.talker.text_vocab_size", "u32", talker_config["text_vocab_size"]),
        (f"{TALKER}.talker.text_hidden_size", "u32", talker_config["text_hidden_size"]),
        (
            f"{TALKER}.talker.position_id_per_seconds",
            "u32",
            talker_config["position_id_per_seconds"],
        ),
        (f"{TALKER}.talker.rope.mrope_section", "i32[]", rope["mrope_section"]),
        (f"{TALKER}.talker.mrope_interleaved", "bool", rope["interleaved"]),
    ]
    speaker = config.get("speaker_encoder_config")
    if speaker is not None:
        entries += [
            (f"{TALKER}.spk_enc.embedding_length", "u32", speaker["enc_dim"]),
            (f"{TALKER}.spk_enc.sample_rate", "u32", speaker["sample_rate"]),
        ]
    return entries


def _talker_codec(talker_config: Config) -> list[Entry]:
    languages = talker_config["codec_language_id"]
    entries: list[Entry] = [
        (f"{TALKER}.codec.{key}", "u32", talker_config[source]) for key, source in _CODEC_IDS
    ]
    entries += [
        (f"{TALKER}.codec.language_names", "str[]", list(languages)),
        (f"{TALKER}.codec.language_ids", "i32[]", list(languages.values())),
    ]
    speakers = talker_config.get("spk_id") or {}
    if speakers:
        dialects = talker_config.get("spk_is_dialect") or {}
        entries += [
            (f"{TALKER}.codec.speaker_names", "str[]", list(speakers)),
            (f"{TALKER}.codec.speaker_ids", "i32[]", list(speakers.values())),
            (
                f"{TALKER}.codec.speaker_dialects",
                "str[]",
                [dialects.get(speaker) or "" for speaker in speakers],
            ),
        ]
    return entries


def _tokenizer(tokenizer: Tokenizer) -> list[Entry]:
    tokens: dict[int, str] = {i: piece for piece, i in tokenizer.vocab.items()}
    types = dict.fromkeys(tokens, _NORMAL)
    for i, token in tokenizer.added.items():
        tokens[i] = token.content
        types[i] = _CONTROL if token.special else _USER_DEFINED
    if sorted(tokens) != list(range(len(tokens))):
        raise SetupError(
            "tokenizer_config.json: added_tokens_decoder leaves a gap after the vocabulary's "
            f"{len(tokenizer.vocab)} tokens."
        )
    end = next((i for i, t in tokenizer.added.items() if t.content == "<|endoftext|>"), None)
    if end is None:
        raise SetupError("tokenizer_config.json has no <|endoftext|> in added_tokens_decoder.")
    return [
        ("tokenizer.ggml.model", "str", "gpt2"),
        ("tokenizer.ggml.tokens", "str[]", [tokens[i] for i in range(len(tokens))]),
        ("tokenizer.ggml.token_type", "i32[]", [types[i] for i in range(len(tokens))]),
        ("tokenizer.ggml.merges", "str[]", tokenizer.merges),
        ("tokenizer.ggml.eos_token_id", "u32", end),
    ]
