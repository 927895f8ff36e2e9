"""What a model's files say; files that would end a native library are refused before it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from phonate.engine.models.convert import ModelFiles
from phonate.engine.models.gguf_header import GgufError
from phonate.engine.qwen.model import read_model, special_strings

Made = Callable[[str], ModelFiles]
Damage = Callable[[bytes], bytes]


def u32(key: str, value: int) -> Damage:
    """Overwrites the value of a u32 key."""

    def patch(data: bytes) -> bytes:
        mark = key.encode() + struct.pack("<I", 4)
        assert data.count(mark) == 1, key
        at = data.index(mark) + len(mark)
        return data[:at] + struct.pack("<I", value) + data[at + 4 :]

    return patch


def f32(key: str, value: float) -> Damage:
    def patch(data: bytes) -> bytes:
        mark = key.encode() + struct.pack("<I", 6)
        assert data.count(mark) == 1, key
        at = data.index(mark) + len(mark)
        return data[:at] + struct.pack("<f", value) + data[at + 4 :]

    return patch


def renamed(old: str, new: str) -> Damage:
    """A key or tensor goes missing: the same length, so that nothing else moves."""
    assert len(old) == len(new)

    def patch(data: bytes) -> bytes:
        assert old.encode() in data, old
        return data.replace(old.encode(), new.encode(), 1)

    return patch


def damaged(files: ModelFiles, which: str, damage: Damage, tmp_path: Path) -> ModelFiles:
    source = getattr(files, which)
    copy = tmp_path / f"{which}.gguf"
    copy.write_bytes(damage(source.read_bytes()))
    return replace(files, **{which: copy})


def test_facts_of_each_kind(made_model: Made) -> None:
    base = read_model(*_pair(made_model("base")))
    assert (base.kind, base.size, base.hidden_size, base.n_codebooks) == ("base", "0b6", 128, 16)
    assert base.has_speaker_encoder
    assert base.has_codec_encoder
    assert not base.full_size_codec
    assert base.quantization == "F32"
    assert len(base.languages) == 10
    assert base.context_length == 32768
    custom = read_model(*_pair(made_model("customvoice")))
    assert custom.kind == "custom_voice"
    assert not custom.takes_instructions
    assert not custom.has_speaker_encoder
    assert set(custom.dialects) == {"beijing_dialect", "sichuan_dialect"}
    assert {s.id for s in custom.speakers if s.language == "chinese"} == {"eric", "dylan"}
    assert read_model(*_pair(made_model("customvoice-large"))).takes_instructions
    design = read_model(*_pair(made_model("voicedesign")))
    assert design.kind == "voice_design"
    assert design.takes_instructions
    assert design.speakers == ()


def _pair(files: ModelFiles) -> tuple[Path, Path]:
    return files.talker, files.codec


def test_special_strings_are_found_longest_first(made_model: Made) -> None:
    found = special_strings(made_model("base").talker)
    assert {"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tts_pad>"} <= set(found)
    assert [len(word) for word in found] == sorted(map(len, found), reverse=True)
    assert "Hello" not in found


TALKER = "qwen3-tts.talker."
KIND = b"model_type" + struct.pack("<IQ", 8, 4)
DAMAGED: dict[str, tuple[str, Damage, str]] = {
    "wrong head_count": (
        "talker",
        u32(f"{TALKER}attention.head_count", 8),
        r"talker\.gguf: the tensor 'talker\.blk\.0\.attn_q\.weight' has the shape",
    ),
    "head_count 0": ("talker", u32(f"{TALKER}attention.head_count", 0), "head_count is 0"),
    "head_count huge": (
        "talker",
        u32(f"{TALKER}attention.head_count", 0xFFFFFFFF),
        "head_count is 4294967295",
    ),
    "no rope base": (
        "talker",
        renamed(f"{TALKER}rope.freq_base", f"{TALKER}rope.freq_bass"),
        "talker.rope.freq_base is missing",
    ),
    "no predictor rope base": (
        "talker",
        renamed("qwen3-tts.code_pred.rope.freq_base", "qwen3-tts.code_pred.rope.freq_bass"),
        "code_pred.rope.freq_base is missing",
    ),
    "rope base 0": ("talker", f32(f"{TALKER}rope.freq_base", 0.0), "freq_base is 0"),
    "rope base NaN": ("talker", f32(f"{TALKER}rope.freq_base", float("nan")), "freq_base is nan"),
    "eps 0": (
        "talker",
        f32(f"{TALKER}attention.layer_norm_rms_epsilon", 0.0),
        "layer_norm_rms_epsilon is 0",
    ),
    "kv heads that do not divide": (
        "talker",
        u32(f"{TALKER}attention.head_count_kv", 3),
        "head_count_kv does not divide 4",
    ),
    "more layers than there are": ("talker", u32(f"{TALKER}block_count", 9), r"blk\.3\..*missing"),
    "wrong width": ("talker", u32(f"{TALKER}embedding_length", 64), "has the shape"),
    "wrong key length": ("talker", u32(f"{TALKER}attention.key_length", 16), "has the shape"),
    "wrong groups": ("talker", u32("qwen3-tts.num_code_groups", 8), "does not fit"),
    "end of speech out of range": (
        "talker",
        u32("qwen3-tts.codec.eos_id", 9999),
        "codec.eos_id is 9999, expected 0..3071",
    ),
    "text id out of range": (
        "talker",
        u32("qwen3-tts.text.tts_pad_id", 1 << 20),
        "tts_pad_id is 1048576",
    ),
    "unknown kind": (
        "talker",
        lambda data: data.replace(KIND + b"base", KIND + b"bass", 1),
        "model_type is not one of base, custom_voice, voice_design",
    ),
    "missing tensor": (
        "talker",
        renamed("talker.output_norm.weight", "talker.output_norm.weighs"),
        "'talker.output_norm.weight' is missing",
    ),
    "another architecture": (
        "talker",
        renamed("qwen3-tts", "qwen3-asr"),
        "general.architecture is 'qwen3-asr'",
    ),
    "truncated": ("talker", lambda data: data[: len(data) // 2], "ends at byte"),
    "codec truncated": ("codec", lambda data: data[:-100_000], "ends at byte"),
    "codec of another hop": (
        "codec",
        u32("qwen3-tts-tokenizer.decode_upsample_rate", 960),
        "decode_upsample_rate is not 1920",
    ),
    "codec of another width": (
        "codec",
        u32("qwen3-tts-tokenizer.decoder.latent_dim", 128),
        "has the shape",
    ),
    "codec without a tensor": (
        "codec",
        renamed("tok_dec.pre_conv.weight", "tok_dec.pre_conv.weighs"),
        "'tok_dec.pre_conv.weight' is missing",
    ),
    "codec without rope": (
        "codec",
        f32("qwen3-tts-tokenizer.decoder.rope_theta", -1.0),
        "rope_theta is -1",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_file_is_refused_by_file_and_key(
    name: str, made_model: Made, tmp_path: Path
) -> None:
    which, damage, said = DAMAGED[name]
    files = damaged(made_model("base"), which, damage, tmp_path)
    with pytest.raises(GgufError, match=said) as caught:
        read_model(files.talker, files.codec)
    assert f"{which}.gguf" in caught.value.message


def test_speaker_row_out_of_range_is_refused(made_model: Made, tmp_path: Path) -> None:
    files = made_model("customvoice")
    mark = struct.pack("<i", 3066)  # serena
    broken = damaged(
        files, "talker", lambda data: data.replace(mark, struct.pack("<i", 99999), 1), tmp_path
    )
    with pytest.raises(GgufError, match="holds 99999 for 'serena'"):
        read_model(broken.talker, broken.codec)


def test_swapped_files_are_told_apart(made_model: Made) -> None:
    files = made_model("base")
    with pytest.raises(GgufError, match="right way round"):
        read_model(files.codec, files.talker)
