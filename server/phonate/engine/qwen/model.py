"""What a Qwen3-TTS talker and codec can do, and whether they are whole, from their headers.

The C ABI tells little about a model, and some libraries end the process on a file whose metadata
contradicts its tensors. So both files are read here first: `read_model` refuses, by file and key,
what no library should be given, and answers the rest of the questions (kind, languages, speakers).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast

from phonate.engine.base import Speaker
from phonate.engine.models.codec_tensors import codec_decoder_tensors
from phonate.engine.models.gguf_header import GgufError, GgufHeader, read_header
from phonate.engine.models.talker_tensors import talker_tensors

Kind: TypeAlias = Literal["base", "custom_voice", "voice_design"]

KINDS: dict[str, Kind] = {
    "base": "base",
    "custom_voice": "custom_voice",
    "customvoice": "custom_voice",
    "voice_design": "voice_design",
    "voicedesign": "voice_design",
}
LANGUAGES = (
    "chinese",
    "english",
    "japanese",
    "korean",
    "german",
    "french",
    "russian",
    "portuguese",
    "spanish",
    "italian",
)
DIALECT_OF = "chinese"
"""Every dialect the released models know is one of Chinese."""
CODE_LIMIT = 2048
"""Reference and generated codes are 0..2047."""

TALKER, CODEC = "qwen3-tts", "qwen3-tts-tokenizer"

_BLOCK = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "vocab_size": "vocab_size",
}
_DECODER = (
    "latent_dim",
    "codebook_dim",
    "codebook_size",
    "decoder_dim",
    "hidden_size",
    "intermediate_size",
    "head_dim",
    "num_attention_heads",
    "num_key_value_heads",
    "num_hidden_layers",
    "num_quantizers",
    "num_semantic_quantizers",
)
FULL_CODEC = {"latent_dim": 1024, "decoder_dim": 1536, "num_quantizers": 16, "codebook_size": 2048}
"""Sizes of the released codec, which qwentts.cpp has hard-coded."""


@dataclass(frozen=True, slots=True)
class QwenModel:
    talker: Path
    codec: Path
    name: str
    kind: Kind
    size: str
    """0b6 or 1b7."""
    hidden_size: int
    """Also the length of an x-vector."""
    n_codebooks: int
    context_length: int
    """Rows the talker was made for; a library may allow fewer."""
    languages: tuple[str, ...]
    dialects: tuple[str, ...]
    speakers: tuple[Speaker, ...]
    quantization: str
    """The type of most of the talker's bytes: Q8_0."""
    has_speaker_encoder: bool
    has_codec_encoder: bool
    full_size_codec: bool

    @property
    def takes_instructions(self) -> bool:
        """The 0.6B custom_voice model was not trained on them: the official package drops them."""
        return self.kind == "voice_design" or (self.kind == "custom_voice" and self.size != "0b6")


class _Keys:
    """Typed reads of one file's metadata, with errors that name file and key."""

    def __init__(self, header: GgufHeader, prefix: str) -> None:
        self.header, self.prefix = header, prefix

    def fail(self, key: str, what: str) -> GgufError:
        return GgufError(
            f"{self.header.path}: {self.prefix}.{key} {what}. The file was not converted "
            "correctly; fetch or convert it again."
        )

    def integer(self, key: str, low: int = 1, high: int = 1 << 24) -> int:
        value = self.header.metadata.get(f"{self.prefix}.{key}")
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(key, "is missing" if value is None else f"is {value!r}, not an integer")
        if not low <= value <= high:
            raise self.fail(key, f"is {value}, expected {low}..{high}")
        return value

    def positive(self, key: str) -> float:
        value = self.header.metadata.get(f"{self.prefix}.{key}")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.fail(key, "is missing" if value is None else f"is {value!r}, not a number")
        if not (math.isfinite(value) and value > 0):
            raise self.fail(key, f"is {value}, expected a finite number above 0")
        return float(value)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.header.metadata.get(f"{self.prefix}.{key}", default)
        if not isinstance(value, str):
            raise self.fail(key, "is missing" if value is None else f"is {value!r}, not text")
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        value = self.header.metadata.get(f"{self.prefix}.{key}", ())
        if not isinstance(value, tuple) or not all(isinstance(item, int) for item in value):
            raise self.fail(key, "is not an array of integers")
        return cast("tuple[int, ...]", value)

    def names(self, key: str, ids_key: str, limit: int) -> tuple[str, ...]:
        """The names beside an array of ids, which all must be rows below `limit`."""
        names, ids = self.header.strings(f"{self.prefix}.{key}"), self.integers(ids_key)
        if len(names) != len(ids):
            raise self.fail(key, f"has {len(names)} items, but {ids_key} {len(ids)}")
        for name, row in zip(names, ids, strict=True):
            if not 0 <= row < limit:
                raise self.fail(ids_key, f"holds {row} for {name!r}, expected 0..{limit - 1}")
        return tuple(names)


def read_model(talker: Path, codec: Path) -> QwenModel:
    """Reads and vets both headers. Raises GgufError (a SetupError) naming the file and the key."""
    talker_header, codec_header = read_header(talker), read_header(codec)
    _check_architecture(talker_header, TALKER, "a Qwen3-TTS talker")
    _check_architecture(codec_header, CODEC, "a Qwen3-TTS 12 Hz codec")
    keys, codec_keys = _Keys(talker_header, TALKER), _Keys(codec_header, CODEC)
    has_speaker_encoder = _check_talker(keys)
    has_codec_encoder = _check_codec(codec_keys)
    n_codebooks = keys.integer("num_code_groups", 2, 64)
    if codec_keys.integer("decoder.num_quantizers") != n_codebooks:
        raise codec_keys.fail("decoder.num_quantizers", f"does not fit {talker} ({n_codebooks})")
    kind = KINDS.get(keys.text("model_type").lower())
    if kind is None:
        raise keys.fail("model_type", f"is not one of {', '.join(sorted(set(KINDS.values())))}")
    vocab = keys.integer("talker.vocab_size")
    known = keys.names("codec.language_names", "codec.language_ids", vocab)
    return QwenModel(
        talker=talker,
        codec=codec,
        name=_name(talker_header),
        kind=kind,
        size=keys.text("model_size", ""),
        hidden_size=keys.integer("talker.embedding_length"),
        n_codebooks=n_codebooks,
        context_length=keys.integer("talker.context_length"),
        languages=tuple(name for name in LANGUAGES if name in known),
        dialects=tuple(name for name in known if name not in LANGUAGES),
        speakers=_speakers(keys, vocab) if kind == "custom_voice" else (),
        quantization=_quantization(talker_header),
        has_speaker_encoder=has_speaker_encoder,
        has_codec_encoder=has_codec_encoder,
        full_size_codec=all(
            codec_keys.integer(f"decoder.{key}") == size for key, size in FULL_CODEC.items()
        ),
    )


def special_strings(talker: Path) -> tuple[str, ...]:
    """Strings that the talker's vocabulary marks as control tokens, longest first."""
    header = read_header(talker)
    tokens = header.strings("tokenizer.ggml.tokens")
    kinds = _long_integers(header, "tokenizer.ggml.token_type")
    found = {token for token, kind in zip(tokens, kinds, strict=False) if kind in (3, 4)}
    for name in ("im_start", "im_end", "tts_pad", "tts_bos", "tts_eos"):
        index = header.metadata.get(f"{TALKER}.text.{name}_id")
        if isinstance(index, int) and 0 <= index < len(tokens):
            found.add(tokens[index])
    return tuple(sorted(found - {""}, key=lambda token: (-len(token), token)))


def _long_integers(header: GgufHeader, key: str) -> tuple[int, ...]:
    value = header.metadata.get(key, ())
    return cast("tuple[int, ...]", value) if isinstance(value, tuple) else ()


def _check_architecture(header: GgufHeader, expected: str, what: str) -> None:
    found = header.metadata.get("general.architecture")
    if found != expected:
        raise GgufError(
            f"{header.path}: not {what}: general.architecture is {found!r}, expected {expected!r}. "
            "Are --talker and --codec the right way round?"
        )


def _check_talker(keys: _Keys) -> bool:
    """Metadata and tensors agree, so that a library which trusts them is safe. True when the
    file has a speaker encoder."""
    for stack in ("talker", "code_pred"):
        keys.positive(f"{stack}.rope.freq_base")
        keys.positive(f"{stack}.attention.layer_norm_rms_epsilon")
        heads = keys.integer(f"{stack}.attention.head_count")
        if heads % keys.integer(f"{stack}.attention.head_count_kv"):
            raise keys.fail(f"{stack}.attention.head_count_kv", f"does not divide {heads}")
        if keys.integer(f"{stack}.attention.key_length") % 2:
            raise keys.fail(f"{stack}.attention.key_length", "is odd")
    talker = {name: keys.integer(f"talker.{key}") for name, key in _BLOCK.items()}
    predictor = {name: keys.integer(f"code_pred.{key}") for name, key in _BLOCK.items()}
    talker |= {
        "text_hidden_size": keys.integer("talker.text_hidden_size"),
        "text_vocab_size": keys.integer("talker.text_vocab_size"),
    }
    predictor["num_code_groups"] = keys.integer("num_code_groups", 2, 64)
    config = {"talker_config": {**talker, "code_predictor_config": predictor}}
    expected = {s.gguf: s.shape[::-1] for s in talker_tensors(config) if s.gguf}
    _check_tensors(keys.header, expected)
    for name in ("pad", "bos", "eos", "think", "nothink", "think_bos", "think_eos"):
        keys.integer(f"codec.{name}_id", 0, talker["vocab_size"] - 1)
    for name in ("im_start", "im_end", "tts_pad", "tts_bos", "tts_eos"):
        keys.integer(f"text.{name}_id", 0, talker["text_vocab_size"] - 1)
    if talker["vocab_size"] < CODE_LIMIT or predictor["vocab_size"] < CODE_LIMIT:
        raise keys.fail("talker.vocab_size", f"is below {CODE_LIMIT}")
    if "spk_enc.conv0.weight" not in keys.header.tensors:
        return False
    if keys.integer("spk_enc.embedding_length") != talker["hidden_size"]:
        raise keys.fail("spk_enc.embedding_length", f"is not {talker['hidden_size']}")
    return True


def _check_codec(keys: _Keys) -> bool:
    """The decoder is whole; True when the encoder is there as well."""
    decoder: dict[str, object] = {key: keys.integer(f"decoder.{key}") for key in _DECODER}
    keys.positive("decoder.rope_theta")
    keys.positive("decoder.rms_norm_eps")
    keys.integer("decoder.sliding_window")
    for key in ("upsample_rates", "upsampling_ratios"):
        rates = keys.integers(f"decoder.{key}")
        if not rates or not all(1 <= rate <= 64 for rate in rates):
            raise keys.fail(f"decoder.{key}", f"is {list(rates)}")
        decoder[key] = list(rates)
    hop = math.prod(cast("list[int]", decoder["upsample_rates"])) * math.prod(
        cast("list[int]", decoder["upsampling_ratios"])
    )
    if hop != keys.integer("decode_upsample_rate"):
        raise keys.fail("decode_upsample_rate", f"is not {hop}, the product of the rates")
    expected = {s.gguf: s.shape[::-1] for s in codec_decoder_tensors(decoder) if s.gguf}
    _check_tensors(keys.header, expected)
    return "tok_enc.conv.0.weight" in keys.header.tensors


def _check_tensors(header: GgufHeader, expected: Mapping[str, tuple[int, ...]]) -> None:
    """Every expected tensor is there, in its shape (fastest dimension first)."""
    for name, shape in expected.items():
        tensor = header.tensors.get(name)
        if tensor is None:
            raise GgufError(
                f"{header.path}: the tensor {name!r} is missing. The file was not converted "
                "correctly; fetch or convert it again."
            )
        if _trim(tensor.shape) != _trim(shape):
            raise GgufError(
                f"{header.path}: the tensor {name!r} has the shape {list(tensor.shape)}, but the "
                f"metadata says {list(shape)}. The file was not converted correctly; fetch or "
                "convert it again."
            )


def _trim(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Without trailing ones, which ggml does not keep."""
    while len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]
    return shape


def _speakers(keys: _Keys, vocab: int) -> tuple[Speaker, ...]:
    names = keys.names("codec.speaker_names", "codec.speaker_ids", vocab)
    if not names:
        raise keys.fail("codec.speaker_names", "is empty, but the model is custom_voice")
    dialects = keys.header.strings(f"{TALKER}.codec.speaker_dialects") or [""] * len(names)
    if len(dialects) != len(names):
        raise keys.fail("codec.speaker_dialects", f"has {len(dialects)} items, not {len(names)}")
    return tuple(
        Speaker(
            id=name, name=name.replace("_", " ").title(), language=DIALECT_OF if dialect else None
        )
        for name, dialect in zip(names, dialects, strict=True)
    )


def _name(header: GgufHeader) -> str:
    name = header.metadata.get("general.name")
    return name if isinstance(name, str) and name else header.path.stem


def _quantization(header: GgufHeader) -> str:
    sizes: Counter[str] = Counter()
    for tensor in header.tensors.values():
        sizes[tensor.type.name] += tensor.n_bytes
    return sizes.most_common(1)[0][0]
