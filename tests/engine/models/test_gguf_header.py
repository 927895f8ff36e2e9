"""The header reader: what it reads, and that no file whatever makes it do more than complain."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phonate.engine.models.gguf_header import MAX_SHORT_ARRAY, GgufError, StringArray, read_header

gguf = pytest.importorskip("gguf", reason="the converter's library writes the files to read")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with every kind of value, written by the reference implementation."""
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    writer = gguf.GGUFWriter(path, "qwen3-tts")
    writer.add_uint8("a.u8", 255)
    writer.add_int8("a.i8", -128)
    writer.add_uint16("a.u16", 65535)
    writer.add_int16("a.i16", -2)
    writer.add_uint32("a.u32", 4_000_000_000)
    writer.add_int32("a.i32", -3)
    writer.add_uint64("a.u64", 1 << 60)
    writer.add_int64("a.i64", -(1 << 60))
    writer.add_float32("a.f32", 0.5)
    writer.add_float64("a.f64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.text", "naïve 日本")
    writer.add_array("a.numbers", [1, 2, 3])
    writer.add_array("a.names", ["x", "", "zz"])
    writer.add_array("a.long", [f"token {i}" for i in range(MAX_SHORT_ARRAY + 5)])
    writer.add_tensor("one", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.add_tensor("two", np.zeros((2, 64), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_every_value_is_read(small: Path) -> None:
    header = read_header(small)
    assert header.version == 3
    expected = {
        "general.architecture": "qwen3-tts",
        "a.u8": 255,
        "a.i8": -128,
        "a.u16": 65535,
        "a.i16": -2,
        "a.u32": 4_000_000_000,
        "a.i32": -3,
        "a.u64": 1 << 60,
        "a.i64": -(1 << 60),
        "a.f32": 0.5,
        "a.f64": 0.1,
        "a.bool": True,
        "a.text": "naïve 日本",
        "a.numbers": (1, 2, 3),
        "a.names": ("x", "", "zz"),
    }
    assert {key: header.metadata[key] for key in expected} == expected


def test_long_arrays_are_noted_and_read_on_demand(small: Path) -> None:
    header = read_header(small)
    assert isinstance(header.metadata["a.long"], StringArray)
    assert header.strings("a.long")[-1] == f"token {MAX_SHORT_ARRAY + 4}"
    assert header.strings("a.names") == ["x", "", "zz"]
    assert header.strings("missing") == []


def test_tensors_lie_where_they_lie(small: Path) -> None:
    header = read_header(small)
    one = header.tensors["one"]
    assert one.shape == (4, 3)
    assert one.type.name == "F32"
    raw = small.read_bytes()[one.offset : one.offset + one.n_bytes]
    np.testing.assert_array_equal(np.frombuffer(raw, np.float32), np.arange(12))
    assert header.tensors["two"].n_bytes == 256


def test_every_truncation_is_noticed(small: Path, tmp_path: Path) -> None:
    """The last tensor ends at the end of the file (but for padding), so no cut goes unseen."""
    data = small.read_bytes()
    end = max(t.offset + t.n_bytes for t in read_header(small).tensors.values())
    path = tmp_path / "cut.gguf"
    for size in [*range(0, 2000, 7), *range(2000, end, 1009), end - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(GgufError, match=r"cut\.gguf"):
            read_header(path)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damage_is_an_error_or_harmless(small: Path, tmp_path: Path, data: st.DataObject) -> None:
    raw = bytearray(small.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, 1500))
        raw[at] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged.gguf"
    path.write_bytes(raw)
    try:
        header = read_header(path)
    except GgufError as exc:
        assert str(path) in exc.message  # noqa: PT017
    else:
        for tensor in header.tensors.values():
            assert 0 < tensor.n_bytes <= header.size - tensor.offset


def head(n_tensors: int, n_keys: int, *rest: bytes) -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", 3, n_tensors, n_keys) + b"".join(rest)


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


HUGE = (1 << 64) - 1
MALICIOUS = {
    "too many tensors": (head(HUGE, 0), "number of tensors"),
    "too many keys": (head(0, HUGE), "number of keys"),
    "endless key name": (head(0, 1, struct.pack("<Q", HUGE)), "length of the name"),
    "endless string": (
        head(0, 1, text(b"k"), struct.pack("<IQ", 8, HUGE)),
        "length of key 'k'",
    ),
    "endless array": (
        head(0, 1, text(b"k"), struct.pack("<IIQ", 9, 5, HUGE)),
        "item count of key 'k'",
    ),
    "endless array of strings": (
        head(0, 1, text(b"k"), struct.pack("<IIQ", 9, 8, 1 << 40)),
        "item count of key 'k'",
    ),
    "array of arrays": (head(0, 1, text(b"k"), struct.pack("<IIQ", 9, 9, 1)), "unknown type 9"),
    "unknown type": (head(0, 1, text(b"k"), struct.pack("<I", 77)), "unknown type 77"),
    "five dimensions": (head(1, 0, text(b"t"), struct.pack("<I", 5)), "dimensions"),
    "key twice": (head(0, 2, *[text(b"k") + struct.pack("<IB", 0, 1)] * 2), "occurs twice"),
    "unknown tensor type": (
        head(1, 0, text(b"t"), struct.pack("<IQIQ", 1, 4, 99, 0)),
        "type 99",
    ),
    "empty dimension": (head(1, 0, text(b"t"), struct.pack("<IQIQ", 1, 0, 0, 0)), "shape"),
    "overflowing shape": (
        head(1, 0, text(b"t"), struct.pack("<IQQIQ", 2, 1 << 62, 1 << 62, 0, 0)),
        "shape",
    ),
    "half a block": (head(1, 0, text(b"t"), struct.pack("<IQIQ", 1, 33, 8, 0)), "multiple of 32"),
    "tensor beyond the end": (
        head(1, 0, text(b"t"), struct.pack("<IQIQ", 1, 8, 0, 1 << 20)),
        "ends at byte",
    ),
    "odd offset": (
        head(1, 0, text(b"t"), struct.pack("<IQIQ", 1, 1, 0, 4), b"\0" * 200),
        "off the alignment",
    ),
    "odd alignment": (
        head(0, 1, text(b"general.alignment"), struct.pack("<II", 4, 0)),
        "general.alignment",
    ),
    "old version": (struct.pack("<4sIQQ", b"GGUF", 1, 0, 0), "version 1"),
    "big endian": (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), "GGUF version"),
    "another file": (b"RIFF" + b"\0" * 100, "not a GGUF"),
    "empty": (b"", "is empty"),
}


@pytest.mark.parametrize("name", MALICIOUS)
def test_hostile_header_is_refused(name: str, tmp_path: Path) -> None:
    data, said = MALICIOUS[name]
    path = tmp_path / "hostile.gguf"
    path.write_bytes(data)
    with pytest.raises(GgufError, match=said):
        read_header(path)


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.gguf", tmp_path):
        with pytest.raises(GgufError, match="cannot be read"):
            read_header(path)
