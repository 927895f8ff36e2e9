"""GGUF's block formats against gguf-py, and packed matrices against plain products."""

from __future__ import annotations

import ctypes
from pathlib import Path

import gguf
import numpy as np
import pytest
import testhooks
from gguf import GGMLQuantizationType as Type

TYPES = [
    *(Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q5_0, Type.Q4_0),
    *(Type.Q4_K, Type.Q5_K, Type.Q6_K),
]


def address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def random_blocks(kind: Type, n_blocks: int, seed: int) -> np.ndarray:
    """Bytes of valid blocks: every bit pattern of the integers, finite scales."""
    _, size = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (n_blocks, size), dtype=np.uint8)
    halves = {
        Type.Q8_0: [0],
        Type.Q5_0: [0],
        Type.Q4_0: [0],
        Type.Q4_K: [0, 2],
        Type.Q5_K: [0, 2],
        Type.Q6_K: [208],
    }
    for at in halves.get(kind, []):
        scales = rng.normal(0, 0.1, n_blocks).astype(np.float16)
        blocks[:, at : at + 2] = scales.view(np.uint8).reshape(n_blocks, 2)
    if kind is Type.Q8_0:
        blocks[:, 2:][blocks[:, 2:] == 128] = 129  # -128 is what no quantiser writes
    return blocks


@pytest.mark.parametrize("kind", TYPES, ids=lambda t: t.name)
def test_dequantised_as_gguf_defines_it(kind):
    if kind in (Type.F32, Type.F16, Type.BF16):
        values = np.random.default_rng(1).normal(size=4096).astype(np.float32)
        raw = gguf.quantize(values, kind).view(np.uint8).reshape(-1)
    else:
        raw = random_blocks(kind, 500, 2).reshape(-1)
    expected = gguf.dequantize(raw, kind).reshape(-1)
    found = np.empty_like(expected)
    assert testhooks.load().hook_dequantize(
        ctypes.c_uint32(int(kind)), address(raw), ctypes.c_int64(found.size), address(found)
    ) == 0  # fmt: skip
    assert (found == expected).all()


def write(path: Path, raw: np.ndarray, kind: Type) -> Path:
    writer = gguf.GGUFWriter(path, "test")
    writer.add_tensor("w", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def linear(path: Path, x: np.ndarray, n: int, threads: int = 2, bits: int = 0) -> np.ndarray:
    return packed(path, x, n, threads, bits)[1]


def packed(
    path: Path, x: np.ndarray, n: int, threads: int = 2, bits: int = 0
) -> tuple[int, np.ndarray]:
    """(bits of the packed weights or 0 for floats, the product)"""
    y = np.full((len(x), n), np.nan, np.float32)
    found = testhooks.load().hook_linear(
        str(path).encode(), b"w", address(x), len(x), threads, bits, address(y)
    )
    assert found >= 0, testhooks.error()
    return found, y


@pytest.mark.parametrize("kind", TYPES, ids=lambda t: t.name)
@pytest.mark.parametrize(("n", "k"), [(1, 256), (37, 512), (200, 768)])
def test_a_packed_matrix_multiplies(tmp_path, kind, n, k):
    rng = np.random.default_rng(n + k)
    per_block, _ = gguf.GGML_QUANT_SIZES[kind]
    if per_block == 1:
        raw = gguf.quantize(rng.normal(0, 0.1, (n, k)).astype(np.float32), kind)
    else:
        raw = random_blocks(kind, n * k // per_block, 3).reshape(n, -1)
    weights = gguf.dequantize(raw, kind).reshape(n, k)
    path = write(tmp_path / "w.gguf", raw, kind)
    x = rng.normal(size=(5, k)).astype(np.float32)
    found, expected = linear(path, x, n), x.astype(np.float64) @ weights.T
    # int8 activations: half a step of 1/127 of the largest in 32, averaged out over k. The K types
    # are requantised besides.
    tolerance = 2e-6 if per_block == 1 else 0.012
    size = np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(weights, axis=1)[None]
    assert (np.abs(found - expected) < tolerance * size).all()
    # Rows and threads make no difference to a bit.
    assert (linear(path, x[2:3], n, threads=3) == found[2:3]).all()


EXACT = {Type.Q8_0: 8, Type.Q5_0: 5, Type.Q4_0: 4}


def read_back(path: Path, n: int, k: int, bits: int = 0) -> tuple[int, np.ndarray]:
    """The weights that the engine holds, by one-hot inputs, which int8 holds exactly."""
    found, y = packed(path, 127 * np.eye(k, dtype=np.float32), n, bits=bits)
    return found, y.T / 127


@pytest.mark.parametrize(("kind", "bits"), EXACT.items(), ids=lambda v: getattr(v, "name", ""))
def test_weights_stay_as_they_are_in_the_file(tmp_path, kind, bits):
    raw = random_blocks(kind, 16 * 4, 5).reshape(16, -1)
    path = write(tmp_path / "w.gguf", raw, kind)
    expected = gguf.dequantize(raw, kind).reshape(16, 128)
    found, weights = read_back(path, 16, 128)
    assert found == bits
    np.testing.assert_allclose(weights, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("bits", [4, 5, 6, 8])
@pytest.mark.parametrize("kind", [Type.Q5_0, Type.Q4_0], ids=lambda t: t.name)
def test_what_has_few_bits_in_the_file_is_not_requantised(tmp_path, kind, bits):
    raw = random_blocks(kind, 16 * 4, 5).reshape(16, -1)
    path = write(tmp_path / "w.gguf", raw, kind)
    found, weights = read_back(path, 16, 128, bits)
    assert found == EXACT[kind]
    np.testing.assert_allclose(weights, gguf.dequantize(raw, kind).reshape(16, 128), rtol=1e-6)


SPREAD = {4: 0.0822, 5: 0.0410, 6: 0.0204, 8: 0.0055}
"""Root mean square error of normally distributed weights, of their spread; the best that any scale
gives is 1 % less at 4 and 5 bits and 2 % less at 6."""


@pytest.mark.parametrize("bits", SPREAD)
@pytest.mark.parametrize("kind", [Type.F32, Type.Q8_0], ids=lambda t: t.name)
def test_error_of_each_number_of_bits(tmp_path, kind, bits):
    values = np.random.default_rng(6).normal(0, 0.1, (64, 512)).astype(np.float32)
    path = write(tmp_path / "w.gguf", gguf.quantize(values, kind), kind)
    found, weights = read_back(path, 64, 512, bits)
    assert found == bits
    error = np.sqrt(np.square(weights - values).mean()) / 0.1
    # Q8_0 has an error of its own; what is Q8_0 already stays at 8 bits.
    own = 0.0055 if kind is Type.Q8_0 and bits < 8 else 0
    assert 0.85 * SPREAD[bits] < error < np.hypot(SPREAD[bits], own)


@pytest.mark.parametrize("bits", [4, 5, 6])
def test_a_searched_scale_is_near_the_best_there_is(tmp_path, bits):
    """Against a search in steps of 1/64 of what the range's lower end holds."""
    values = np.random.default_rng(7).normal(0, 0.1, (32, 64)).astype(np.float32)
    path = write(tmp_path / "w.gguf", values, Type.F32)
    error = np.square(read_back(path, 32, 64, bits)[1] - values).reshape(-1, 32).sum(1)
    blocks, zero = values.reshape(-1, 32), 2.0 ** (bits - 1)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(1)[:, None], 1)
    best = np.full(len(blocks), np.inf)
    for step in np.arange(-1, 4, 1 / 64):
        q = np.clip(np.rint(blocks * (step - zero) / largest), -zero, zero - 1)
        scale = (blocks * q).sum(1) / (q * q).sum(1)
        best = np.minimum(best, np.square(blocks - scale[:, None] * q).sum(1))
    assert best.sum() < error.sum() < 1.06 * best.sum()


@pytest.mark.parametrize("bits", [4, 5, 6])
def test_few_bits_of_nothing_and_of_tiny_weights(tmp_path, bits):
    values = np.zeros((8, 64), np.float32)
    values[1] = 1e-12
    values[2, 5] = -3.0
    path = write(tmp_path / "w.gguf", values, Type.F32)
    weights = read_back(path, 8, 64, bits)[1]
    np.testing.assert_allclose(weights, np.where(np.abs(values) > 1e-6, values, 0), rtol=2e-3)
