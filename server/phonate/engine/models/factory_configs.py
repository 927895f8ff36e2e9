"""Configuration files of made-up checkpoints: the released architecture at any size.

Tiny sizes keep what the official package and the engines take for granted (16 code groups, 3072
codec ids, 2048 codes, 1920 samples a frame, window 72) and shrink every width and depth.
"""

from __future__ import annotations

from dataclasses import dataclass

from phonate.engine.models.talker_tensors import Config

KINDS = {"base": "base", "customvoice": "custom_voice", "voicedesign": "voice_design"}
"""Name in a file or a command -> tts_model_type."""

SAMPLE_RATE = 24000
SAMPLES_PER_FRAME = 1920
N_CODE_GROUPS = 16
CODEC_VOCAB = 3072
CODES = 2048

_LANGUAGE_IDS = {
    "chinese": 2055,
    "english": 2050,
    "german": 2053,
    "italian": 2070,
    "portuguese": 2071,
    "spanish": 2054,
    "japanese": 2058,
    "korean": 2064,
    "french": 2061,
    "russian": 2069,
}
_DIALECT_IDS = {"beijing_dialect": 2074, "sichuan_dialect": 2062}
_SPEAKER_IDS = {
    "serena": 3066,
    "vivian": 3065,
    "uncle_fu": 3010,
    "ryan": 3061,
    "aiden": 2861,
    "ono_anna": 2873,
    "sohee": 2864,
    "eric": 2875,
    "dylan": 2878,
}
_SPEAKER_DIALECTS = {"eric": "sichuan_dialect", "dylan": "beijing_dialect"}


@dataclass(frozen=True, slots=True)
class BlockSize:
    """One transformer: width, inner width, depth, heads."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class TalkerSize:
    label: str
    """tts_model_size in config.json."""
    talker: BlockSize
    predictor: BlockSize
    text_hidden: int
    text_vocab: int
    mrope_section: tuple[int, int, int]
    speaker_channels: tuple[int, ...] | None = None
    """None leaves the released 512, 512, 512, 512, 1536."""


_TINY = BlockSize(128, 256, 3, 4, 2, 32)
_TINY_PREDICTOR = BlockSize(128, 256, 2, 4, 2, 32)
_PREDICTOR = BlockSize(1024, 3072, 5, 16, 8, 128)
_TINY_SPEAKER = (64, 64, 64, 64, 192)

TALKER_SIZES: dict[str, TalkerSize] = {
    "tiny": TalkerSize("0b6", _TINY, _TINY_PREDICTOR, 64, 512, (8, 4, 4), _TINY_SPEAKER),
    # Talker wider than predictor, as in 1.7B, hence with a projection between; 256 is the block of
    # the K quantisations, so that these types appear in a small file at all.
    "tiny-proj": TalkerSize(
        "1b7",
        BlockSize(256, 512, 3, 4, 2, 64),
        BlockSize(128, 256, 2, 4, 2, 32),
        256,
        512,
        (12, 10, 10),
        _TINY_SPEAKER,
    ),
    "0.6b": TalkerSize(
        "0b6", BlockSize(1024, 3072, 28, 16, 8, 128), _PREDICTOR, 2048, 151936, (24, 20, 20)
    ),
    "1.7b": TalkerSize(
        "1b7", BlockSize(2048, 6144, 28, 16, 8, 128), _PREDICTOR, 2048, 151936, (24, 20, 20)
    ),
}


@dataclass(frozen=True, slots=True)
class CodecSize:
    decoder: BlockSize
    latent: int
    codebook: int
    decoder_width: int
    encoder: BlockSize
    encoder_filters: int
    encoder_codebook: int


CODEC_SIZES: dict[str, CodecSize] = {
    "tiny": CodecSize(
        BlockSize(32, 64, 2, 2, 2, 16), 64, 32, 96, BlockSize(32, 64, 2, 2, 2, 16), 4, 16
    ),
    "full": CodecSize(
        BlockSize(512, 1024, 8, 16, 16, 64),
        1024,
        512,
        1536,
        BlockSize(512, 2048, 8, 8, 8, 64),
        64,
        256,
    ),
}


def _block(size: BlockSize) -> Config:
    return {
        "hidden_size": size.hidden,
        "intermediate_size": size.inner,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "head_dim": size.head_dim,
    }


def model_config(kind: str, size: TalkerSize, text_ids: dict[str, int]) -> Config:
    """config.json. `kind` is a key of KINDS, `text_ids` the special tokens of the tokenizer."""
    custom = kind == "customvoice"
    shared = {
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "num_code_groups": N_CODE_GROUPS,
    }
    predictor = {
        **_block(size.predictor),
        **shared,
        "vocab_size": CODES,
        "max_position_embeddings": 65536,
        "model_type": "qwen3_tts_talker_code_predictor",
    }
    talker = {
        "code_predictor_config": predictor,
        **_block(size.talker),
        **shared,
        "vocab_size": CODEC_VOCAB,
        "max_position_embeddings": 32768,
        "rope_scaling": {
            "interleaved": True,
            "mrope_section": list(size.mrope_section),
            "rope_type": "default",
            "type": "default",
        },
        "text_hidden_size": size.text_hidden,
        "text_vocab_size": size.text_vocab,
        "position_id_per_seconds": 13,
        "codec_pad_id": 2148,
        "codec_bos_id": 2149,
        "codec_eos_token_id": 2150,
        "codec_think_id": 2154,
        "codec_nothink_id": 2155,
        "codec_think_bos_id": 2156,
        "codec_think_eos_id": 2157,
        "pad_token_id": 2148,
        "codec_language_id": _LANGUAGE_IDS | (_DIALECT_IDS if custom else {}),
        "spk_id": dict(_SPEAKER_IDS) if custom else {},
        "spk_is_dialect": (
            {name: _SPEAKER_DIALECTS.get(name, False) for name in _SPEAKER_IDS} if custom else {}
        ),
        "model_type": "qwen3_tts_talker",
    }
    config: Config = {
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "model_type": "qwen3_tts",
        "transformers_version": "4.57.3",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_size": size.label,
        "tts_model_type": KINDS[kind],
        **text_ids,
        "talker_config": talker,
    }
    if kind == "base":
        config["speaker_encoder_config"] = _speaker_encoder(size)
    return config


def _speaker_encoder(size: TalkerSize) -> Config:
    # The x-vector is one row of the talker's input.
    config: Config = {"enc_dim": size.talker.hidden, "sample_rate": SAMPLE_RATE}
    if size.speaker_channels is not None:
        config |= {
            "enc_channels": list(size.speaker_channels),
            "enc_attention_channels": 16,
            "enc_se_channels": 16,
        }
    return config


def codec_config(size: CodecSize) -> Config:
    """speech_tokenizer/config.json."""
    shared = {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "codebook_size": CODES,
        "layer_scale_initial_scale": 0.01,
        "max_position_embeddings": 8000,
        "rope_theta": 10000.0,
        "num_semantic_quantizers": 1,
    }
    decoder = {
        **_block(size.decoder),
        **shared,
        "latent_dim": size.latent,
        "codebook_dim": size.codebook,
        "decoder_dim": size.decoder_width,
        "hidden_act": "silu",
        "num_quantizers": N_CODE_GROUPS,
        "rms_norm_eps": 1e-5,
        "semantic_codebook_size": 4096,
        "sliding_window": 72,
        "upsample_rates": [8, 5, 4, 3],
        "upsampling_ratios": [2, 2],
        "vector_quantization_hidden_dimension": size.codebook,
    }
    encoder = {
        **_block(size.encoder),
        **shared,
        "_frame_rate": SAMPLE_RATE / SAMPLES_PER_FRAME,
        "audio_channels": 1,
        "codebook_dim": size.encoder_codebook,
        "compress": 2,
        "dilation_growth_rate": 2,
        "hidden_act": "gelu",
        "kernel_size": 7,
        "last_kernel_size": 3,
        "norm_eps": 1e-5,
        "normalize": False,
        "num_filters": size.encoder_filters,
        "num_quantizers": 32,
        "num_residual_layers": 1,
        "pad_mode": "constant",
        "residual_kernel_size": 3,
        "sampling_rate": SAMPLE_RATE,
        "sliding_window": 250,
        "trim_right_ratio": 1.0,
        "upsample_groups": size.encoder.hidden,
        "upsampling_ratios": [8, 6, 5, 4],
        "use_causal_conv": True,
        "use_conv_shortcut": False,
        "use_streaming": False,
        "vector_quantization_hidden_dimension": size.encoder_codebook,
    }
    return {
        "architectures": ["Qwen3TTSTokenizerV2Model"],
        "model_type": "qwen3_tts_tokenizer_12hz",
        "transformers_version": "4.57.3",
        "decoder_config": decoder,
        "encoder_config": encoder,
        "encoder_valid_num_quantizers": N_CODE_GROUPS,
        "input_sample_rate": SAMPLE_RATE,
        "output_sample_rate": SAMPLE_RATE,
        "decode_upsample_rate": SAMPLES_PER_FRAME,
        "encode_downsample_rate": SAMPLES_PER_FRAME,
    }


GENERATION_CONFIG: Config = {
    "do_sample": True,
    "repetition_penalty": 1.05,
    "temperature": 0.9,
    "top_p": 1.0,
    "top_k": 50,
    "subtalker_dosample": True,
    "subtalker_temperature": 0.9,
    "subtalker_top_p": 1.0,
    "subtalker_top_k": 50,
    "max_new_tokens": 8192,
}

PREPROCESSOR_CONFIG: Config = {
    "processor_class": "Qwen3TTSProcessor",
    "padding_side": "left",
    "padding_value": 0.0,
}

CODEC_PREPROCESSOR_CONFIG: Config = {
    "chunk_length_s": None,
    "feature_extractor_type": "EncodecFeatureExtractor",
    "feature_size": 1,
    "overlap": None,
    "padding_side": "right",
    "padding_value": 0.0,
    "return_attention_mask": True,
    "sampling_rate": SAMPLE_RATE,
}
