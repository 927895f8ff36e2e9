"""Our reader and writer against the `safetensors` package, and against damaged files."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file

from phonate.engine.models.factory_weights import f32_to_bf16
from phonate.engine.models.safetensors_file import (
    SafetensorsFile,
    TensorToWrite,
    bf16_to_f32,
    write_safetensors,
)
from phonate.errors import SetupError


def write(path, tensors):
    for _ in write_safetensors(path, tensors):
        pass


def test_the_package_reads_what_we_write(tmp_path):
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    pieces = [a[:1].ravel(), a[1:].ravel()]
    write(tmp_path / "m", [TensorToWrite("a", "F32", (3, 4), pieces)])
    with safe_open(tmp_path / "m", "np") as file:
        assert (file.get_tensor("a") == a).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_we_read_what_the_package_writes(tmp_path, dtype):
    a = np.linspace(-2, 2, 24).reshape(2, 3, 4).astype(dtype)
    save_file({"a": a, "b": np.zeros((0, 2), np.float32)}, tmp_path / "m")
    with SafetensorsFile(tmp_path / "m") as file:
        assert file.tensors["a"].shape == (2, 3, 4)
        assert (file.rows("a", 1, 1) == a[1].reshape(1, -1).astype(np.float32)).all()


def test_bfloat16_comes_back(tmp_path):
    values = np.array([[1.0, -2.5], [3e38, 1e-30]], np.float32)
    bits = f32_to_bf16(values.ravel())
    write(tmp_path / "m", [TensorToWrite("a", "BF16", (2, 2), [bits])])
    with SafetensorsFile(tmp_path / "m") as file:
        found = file.rows("a", 0, 2)
    assert found == pytest.approx(values, rel=2**-8)


@settings(deadline=None)
@given(
    st.floats(
        width=32, allow_nan=False, allow_infinity=False, max_value=2.0**127, min_value=-(2.0**127)
    )
)
def test_bfloat16_is_the_nearest(x):
    value = np.array([x], np.float32)
    bits = f32_to_bf16(value)
    error = abs(float(bf16_to_f32(bits)[0]) - float(value[0]))
    for neighbour in (bits - 1, bits + 1):
        other = bf16_to_f32(neighbour.astype(np.uint16))[0]
        if np.isfinite(other):
            assert error <= abs(float(other) - float(value[0]))


def test_other_types_are_listed_but_not_read(tmp_path):
    save_file({"n": np.arange(4)}, tmp_path / "m")
    with SafetensorsFile(tmp_path / "m") as file:
        assert file.tensors["n"].dtype == "I64"
        with pytest.raises(SetupError, match="tensor n has type I64"):
            file.rows("n", 0, 4)


def test_every_truncation_is_refused(tmp_path):
    save_file({"a": np.ones((4, 4), np.float32)}, tmp_path / "m")
    whole = (tmp_path / "m").read_bytes()
    for size in range(len(whole)):
        (tmp_path / "cut").write_bytes(whole[:size])
        with pytest.raises(SetupError, match="not a whole safetensors file"):
            SafetensorsFile(tmp_path / "cut")


@pytest.mark.parametrize(
    "header",
    [
        {"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}},
        {"a": {"dtype": "F32", "shape": [2]}},
        {"a": {"dtype": "F32", "shape": "x", "data_offsets": [0, 8]}},
        {"a": []},
        [],
    ],
)
def test_impossible_headers_are_refused(tmp_path, header):
    text = json.dumps(header).encode()
    (tmp_path / "m").write_bytes(len(text).to_bytes(8, "little") + text + bytes(64))
    with pytest.raises(SetupError, match=r"m is not a whole safetensors file"):
        SafetensorsFile(tmp_path / "m")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SetupError, match=r"Cannot read .*nothing: No such file"):
        SafetensorsFile(tmp_path / "nothing")
