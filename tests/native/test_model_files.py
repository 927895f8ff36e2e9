"""Model files that are damaged, incomplete or not what they say: a message, never a crash."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import qtlib


def rewrite(
    source: Path, target: Path, *, drop: str = "", keys: dict[str, Any] | None = None
) -> Path:
    """A copy without tensor (or key) `drop` and with other values for `keys`."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in (drop, "general.architecture"):
            continue
        value = (keys or {}).get(name, field.contents())
        kind = field.types[0]
        sub = field.types[-1] if kind is gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, value, kind, sub_type=sub)
    for tensor in reader.tensors:
        if tensor.name != drop:
            writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def error_of(talker: Path, codec: Path) -> str:
    with pytest.raises(RuntimeError) as error:
        qtlib.Context(talker, codec).close()
    return str(error.value)


TALKER_KEYS = {
    "qwen3-tts.talker.attention.head_count": 3,
    "qwen3-tts.talker.attention.key_length": 33,
    "qwen3-tts.talker.block_count": 0,
    "qwen3-tts.talker.embedding_length": 2**31,
    "qwen3-tts.talker.feed_forward_length": 250,
    "qwen3-tts.talker.rope.freq_base": float("nan"),
    "qwen3-tts.talker.attention.layer_norm_rms_epsilon": -1.0,
    "qwen3-tts.code_pred.vocab_size": 5000,
    "qwen3-tts.codec.eos_id": 5,
    "qwen3-tts.codec.language_ids": [1, 2],
    "qwen3-tts.model_type": "singer",
    "qwen3-tts.num_code_groups": 8,
    "qwen3-tts.text.tts_pad_id": 100000,
}


@pytest.mark.parametrize("key", TALKER_KEYS)
def test_an_impossible_number_is_named(made, tmp_path, key):
    files = made("tiny-base")
    talker = rewrite(files.talker, tmp_path / "t.gguf", keys={key: TALKER_KEYS[key]})
    message = error_of(talker, files.codec)
    assert str(talker) in message
    assert f"'{key}" in message or "tensor" in message


@pytest.mark.parametrize(
    "name",
    [
        "talker.blk.1.attn_k.weight",
        "talker.text_embd.weight",
        "talker.output_norm.weight",
        "code_pred.lm_head.7.weight",
        "code_pred.codec_embd.14.weight",
        "qwen3-tts.talker.block_count",
        "qwen3-tts.talker.rope.freq_base",
        "qwen3-tts.codec.bos_id",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.merges",
    ],
)
def test_what_is_missing_is_named(made, tmp_path, name):
    files = made("tiny-base")
    talker = rewrite(files.talker, tmp_path / "t.gguf", drop=name)
    assert f"{talker}: " in (message := error_of(talker, files.codec))
    assert f"'{name}' is missing" in message


def test_a_codec_without_a_tensor(made, tmp_path):
    files = made("tiny-base")
    codec = rewrite(files.codec, tmp_path / "c.gguf", drop="tok_dec.dec.0.conv.weight")
    message = error_of(files.talker, codec)
    assert str(codec) in message
    assert "tok_dec.dec.0.conv.weight" in message


def test_truncated_anywhere(made, tmp_path):
    files = made("tiny-base", "Q8_0")
    whole = files.talker.read_bytes()
    talker = tmp_path / "t.gguf"
    for cut in [0, 3, 24, 100, 1000, 5000, len(whole) // 2, len(whole) - 1]:
        talker.write_bytes(whole[:cut])
        assert str(talker) in error_of(talker, files.codec)


def test_flipped_bytes_in_the_header(made, tmp_path):
    """Loads or is refused; what loads also speaks or is refused."""
    files = made("tiny-base", "Q4_0")
    whole = bytearray(files.talker.read_bytes())
    tensors = min(t.data_offset for t in gguf.GGUFReader(files.talker).tensors)
    draw, talker, loaded = random.Random(3), tmp_path / "t.gguf", 0
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            damaged[draw.randrange(tensors)] = draw.randrange(256)
        talker.write_bytes(damaged)
        try:
            with qtlib.Context(talker, files.codec) as ctx:
                ctx.buffered(text="Hello", max_new_tokens=2)
                loaded += 1
        except RuntimeError as error:
            assert ".gguf: " in str(error)  # noqa: PT017
    assert loaded > 0


def test_weights_that_are_not_numbers_end_the_request(made, tmp_path):
    files = made("tiny-base")
    reader = gguf.GGUFReader(files.talker)
    norm = next(t for t in reader.tensors if t.name == "talker.output_norm.weight")
    damaged = bytearray(files.talker.read_bytes())
    damaged[norm.data_offset : norm.data_offset + norm.n_bytes] = b"\xff" * int(norm.n_bytes)
    talker = tmp_path / "t.gguf"
    talker.write_bytes(damaged)
    with qtlib.Context(talker, files.codec) as ctx:
        spoken = ctx.buffered(text="Hello", max_new_tokens=2)
        assert spoken.status == qtlib.FAILED
        assert "logits are not numbers" in spoken.error
        assert ctx.buffered(text="Hello", max_new_tokens=2).status == qtlib.FAILED
