"""Which tensor gets which type, and how far each type is from the numbers it stores."""

from __future__ import annotations

import functools
import math

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phonate.engine.models.factory_configs import (
    CODEC_SIZES,
    TALKER_SIZES,
    codec_config,
    model_config,
)
from phonate.engine.models.factory_tokenizer import small_tokenizer
from phonate.engine.models.gguf_types import (
    BLOCKS,
    FILE_TYPES,
    encode,
    encoded_size,
    file_type,
    tensor_type,
)
from phonate.engine.models.talker_tensors import codec_tensors, talker_tensors
from phonate.errors import SetupError

RMS_ERROR = {
    "F32": 0,
    "F16": 3e-4,
    "BF16": 3e-3,
    "Q8_0": 0.006,
    "Q6_K": 0.020,
    "Q5_K": 0.039,
    "Q4_K": 0.077,
    "Q5_0": 0.041,
    "Q4_0": 0.082,
}
"""Of the spread of normally distributed weights; llama.cpp's own encoders reach about the same."""


@functools.cache
def types_of(size: str, wanted: str) -> dict[str, str]:
    config = model_config("base", TALKER_SIZES[size], small_tokenizer().text_ids)
    codec = codec_config(CODEC_SIZES["full"])
    specs = [*talker_tensors(config), *codec_tensors(codec)]
    return {s.gguf: tensor_type(s, wanted) for s in specs if s.gguf}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("talker.blk.0.attn_q.weight", {"F32": "F32", "Q8_0": "Q8_0", "Q4_K_M": "Q4_K"}),
        ("talker.text_embd.weight", {"BF16": "BF16", "Q8_0": "Q8_0", "Q4_K_M": "Q6_K"}),
        ("code_pred.codec_embd.3.weight", {"Q4_0": "Q8_0", "Q5_K_M": "Q6_K", "Q6_K": "Q8_0"}),
        ("code_pred.lm_head.3.weight", {"Q4_0": "Q4_0", "Q5_K_M": "Q5_K"}),
        ("talker.blk.3.attn_v.weight", {"P5": "Q5_0", "P4": "Q5_0"}),
        ("talker.blk.3.ffn_up.weight", {"P5": "Q5_0", "P4": "Q5_0"}),
        ("talker.blk.3.ffn_down.weight", {"P5": "Q8_0", "P4": "Q8_0"}),
        ("talker.codec_head.weight", {"P5": "Q8_0", "P4": "Q8_0"}),
        ("talker.text_embd.weight", {"P5": "Q6_K", "P4": "Q6_K"}),
        ("talker.blk.3.attn_norm.weight", {"P5": "F32", "P4": "F32"}),
        ("code_pred.blk.0.ffn_down.weight", {"P5": "Q5_0", "P4": "Q4_0"}),
        ("code_pred.lm_head.14.weight", {"P5": "Q5_0", "P4": "Q4_0"}),
        ("code_pred.codec_embd.14.weight", {"P5": "Q8_0", "P4": "Q8_0"}),
        ("tok_dec.upsample.0.pwconv1.weight", {"P5": "Q8_0", "P4": "Q8_0"}),
        ("talker.blk.0.attn_norm.weight", {"F16": "F32", "Q8_0": "F32"}),
        ("spk_enc.fc.weight", {"F16": "F32", "Q8_0": "F32"}),
        ("spk_enc.mfa.weight", {"F32": "F32", "BF16": "BF16", "Q8_0": "F16", "Q4_K_M": "F16"}),
        ("tok_dec.dec.1.conv_t.weight", {"Q8_0": "F16", "F32": "F32"}),
        ("tok_dec.dec.1.snake.alpha", {"F16": "F32", "Q8_0": "F32"}),
        ("tok_dec.upsample.0.pwconv1.weight", {"Q8_0": "Q8_0"}),
        ("tok_dec.vq_first.output_proj.weight", {"Q8_0": "F32", "F16": "F32"}),
        ("tok_enc.vq_acoustic.0.codebook", {"Q8_0": "F32", "F16": "F32"}),
        ("tok_enc.blk.0.attn_scale", {"F16": "F32"}),
        ("tok_enc.blk.0.ffn_up.weight", {"Q8_0": "Q8_0", "Q4_K_M": "Q4_K"}),
    ],
)
def test_the_policy(name, expected):
    assert {wanted: types_of("0.6b", wanted)[name] for wanted in expected} == expected


def test_rows_that_do_not_divide_fall_back_to_half_precision():
    types = types_of("tiny", "Q4_K_M")
    assert types["talker.blk.0.attn_q.weight"] == "F16"  # 128 wide
    assert types["talker.blk.0.ffn_down.weight"] == "Q4_K"  # 256 wide


def test_block_sizes_are_those_of_the_format():
    for kind, sizes in BLOCKS.items():
        assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]] == sizes
    for mix in FILE_TYPES.values():
        assert {mix.matrix, mix.embedding, *(t for _, t in mix.others)} <= set(BLOCKS)


@pytest.mark.parametrize(("kind", "gigabytes"), [("Q8_0", 0.987), ("P5", 0.738), ("P4", 0.724)])
def test_size_of_the_talker_of_0_6b(kind, gigabytes):
    config = model_config("base", TALKER_SIZES["0.6b"], small_tokenizer().text_ids)
    specs = [s for s in talker_tensors(config) if s.gguf]
    size = sum(encoded_size(math.prod(s.shape), tensor_type(s, kind)) for s in specs)
    assert size / 1e9 == pytest.approx(gigabytes, abs=0.002)


def test_unknown_types_are_refused_with_the_known_ones():
    assert file_type("q4_k_m") == "Q4_K_M"
    with pytest.raises(SetupError, match=r"'Q2_K'.*F32, F16, BF16, Q8_0"):
        file_type("Q2_K")


@pytest.mark.parametrize("kind", BLOCKS)
def test_error_of_each_type(kind):
    rows = np.random.default_rng(0).standard_normal((64, 1024)).astype(np.float32)
    error = np.sqrt(((decode(rows, kind) - rows) ** 2).mean())
    assert error <= RMS_ERROR[kind]
    assert error >= RMS_ERROR[kind] / 3


def decode(rows: np.ndarray, kind: str) -> np.ndarray:
    data = encode(rows, kind)
    assert data.nbytes == encoded_size(rows.size, kind)
    return gguf.quants.dequantize(data, gguf.GGMLQuantizationType[kind]).reshape(rows.shape)


@pytest.mark.parametrize("kind", ["Q5_0", "Q4_0"])
def test_a_searched_scale_beats_that_of_the_largest(kind):
    rows = np.random.default_rng(3).standard_normal((64, 1024)).astype(np.float32)
    ggml = gguf.GGMLQuantizationType[kind]
    plain = gguf.quants.dequantize(gguf.quants.quantize(rows, ggml), ggml)

    def error(found):
        return np.square(found - rows).reshape(-1, 32).sum(1)

    ours, theirs = error(decode(rows, kind)), error(plain)
    assert ours.sum() < 0.9 * theirs.sum()
    # Block by block, too: its choice is one of those searched, but for the scale's rounding.
    assert (ours <= theirs * 1.001).all()


OUR_TYPES = ("Q4_K", "Q5_K", "Q6_K", "Q5_0", "Q4_0")


@pytest.mark.parametrize("kind", OUR_TYPES)
@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((2, 512), np.float32),
        np.full((1, 256), 0.7, np.float32),
        -np.linspace(5, 6, 256, dtype=np.float32)[None],
        np.eye(4, 256, dtype=np.float32) * 100,
        np.where(np.arange(256) < 128, 1e-30, 1)[None],
    ],
    ids=["zeros", "constant", "negative", "one-in-a-row", "tiny-half"],
)
def test_odd_rows(kind, rows):
    found = decode(rows.astype(np.float32), kind)
    assert np.isfinite(found).all()
    assert np.abs(found - rows).max() <= 0.07 * max(np.abs(rows).max(), 1e-9)


LOOSE = {"Q4_K": 0.1, "Q5_K": 0.05, "Q6_K": 0.04, "Q5_0": 0.06, "Q4_0": 0.12}


@settings(deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(OUR_TYPES), st.floats(1e-3, 1e3), st.floats(-3, 3))
def test_any_scale_and_offset(seed, kind, scale, offset):
    rows = np.random.default_rng(seed).standard_normal((3, 512)).astype(np.float32)
    rows = (rows + np.float32(offset)) * np.float32(scale)
    error = np.sqrt(((decode(rows, kind) - rows) ** 2).mean())
    assert error <= LOOSE[kind] * rows.std() * (1 + abs(offset))


@pytest.mark.parametrize("kind", BLOCKS)
def test_rows_do_not_depend_on_their_neighbours(kind):
    rows = np.random.default_rng(1).standard_normal((16, 256)).astype(np.float32)
    whole = encode(rows, kind).tobytes()
    assert whole == b"".join(encode(rows[i : i + 1], kind).tobytes() for i in range(16))
