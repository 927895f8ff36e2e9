"""The header of a GGUF file: its metadata and where its tensors lie. Nothing is loaded.

Reads only what a file really holds: every count and length is checked against the bytes that are
left, nesting is bounded, and a damaged or truncated file is a `GgufError` that names the file and
the key. Long string arrays (a vocabulary) are noted, not decoded; `strings` decodes one on demand.

Layout (little-endian, version 2 and 3): magic "GGUF", u32 version, u64 n_tensors, u64 n_keys;
keys: string name, u32 type, value; tensors: string name, u32 n_dims, u64 dims[], u32 type,
u64 offset from the data section, which begins at the next multiple of `general.alignment`.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from phonate.errors import SetupError

Scalar: TypeAlias = "int | float | bool | str"
Value: TypeAlias = "Scalar | tuple[Scalar, ...] | StringArray"

MAX_KEYS = 65_536
MAX_TENSORS = 65_536
MAX_NAME_BYTES = 65_535
MAX_VALUE_BYTES = 16 << 20
MAX_SHORT_ARRAY = 4096
"""Arrays up to this many items are decoded at once; longer ones are noted."""


class GgufError(SetupError):
    """The file is not a GGUF that can be used; the message names the file and the spot."""


class TensorType(NamedTuple):
    name: str
    block: int
    """Elements per block; a row must be a multiple of it."""
    bytes: int
    """Bytes per block."""


# ggml's numbering; what is not listed is not used by any Qwen3-TTS file.
TENSOR_TYPES: dict[int, TensorType] = {
    0: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    2: TensorType("Q4_0", 32, 18),
    3: TensorType("Q4_1", 32, 20),
    6: TensorType("Q5_0", 32, 22),
    7: TensorType("Q5_1", 32, 24),
    8: TensorType("Q8_0", 32, 34),
    10: TensorType("Q2_K", 256, 84),
    11: TensorType("Q3_K", 256, 110),
    12: TensorType("Q4_K", 256, 144),
    13: TensorType("Q5_K", 256, 176),
    14: TensorType("Q6_K", 256, 210),
    30: TensorType("BF16", 1, 2),
}

# type number -> struct format; 8 is a string, 9 an array
_FORMATS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class StringArray:
    """A long array of strings that was walked over: where it begins, how many it holds."""

    offset: int
    count: int


@dataclass(frozen=True, slots=True)
class Tensor:
    shape: tuple[int, ...]
    """Fastest dimension first, as ggml counts."""
    type: TensorType
    offset: int
    """From the start of the file."""
    n_bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    path: Path
    version: int
    size: int
    """Of the file, in bytes."""
    metadata: dict[str, Value]
    tensors: dict[str, Tensor]

    def strings(self, key: str) -> list[str]:
        """The string array under `key`, [] when there is none."""
        value = self.metadata.get(key)
        if isinstance(value, tuple):
            return [item for item in value if isinstance(item, str)]
        if not isinstance(value, StringArray):
            return []
        with _open(self.path) as reader:
            reader.at = value.offset
            return [reader.string(key) for _ in range(value.count)]


class _Reader:
    """Bounded little-endian reads over a mapped file."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.size = len(data)
        self.at = 0

    def fail(self, what: str) -> GgufError:
        return GgufError(
            f"{self.path}: {what}. The file is damaged or was not downloaded completely; "
            "fetch it again."
        )

    def take(self, n_bytes: int, what: str) -> int:
        """Moves past `n_bytes` and returns where they began."""
        start = self.at
        if n_bytes < 0 or n_bytes > self.size - start:
            raise self.fail(f"{what} needs {n_bytes} bytes at offset {start} of {self.size}")
        self.at = start + n_bytes
        return start

    def number(self, fmt: str, what: str) -> int | float | bool:
        start = self.take(struct.calcsize("<" + fmt), what)
        value: int | float | bool = struct.unpack_from("<" + fmt, self.data, start)[0]
        return value

    def count(self, fmt: str, limit: int, what: str) -> int:
        value = int(self.number(fmt, what))
        if value > limit:
            raise self.fail(f"{what} is {value}, more than {limit}")
        return value

    def string(self, what: str, limit: int = MAX_VALUE_BYTES) -> str:
        n_bytes = self.count("Q", limit, f"the length of {what}")
        start = self.take(n_bytes, what)
        return self.data[start : start + n_bytes].decode("utf-8", errors="replace")

    def skip_strings(self, count: int, what: str) -> None:
        unpack = struct.Struct("<Q").unpack_from
        at, size, data = self.at, self.size, self.data
        for _ in range(count):
            if at + 8 > size:
                raise self.fail(f"{what} ends beyond the file")
            (n_bytes,) = unpack(data, at)
            at += 8 + n_bytes
            if at > size:
                raise self.fail(f"{what} ends beyond the file")
        self.at = at

    def value(self, what: str) -> Value:
        kind = int(self.number("I", f"the type of {what}"))
        if kind == _ARRAY:
            return self.array(what)
        return self.scalar(kind, what)

    def scalar(self, kind: int, what: str) -> Scalar:
        if kind == _STRING:
            return self.string(what)
        fmt = _FORMATS.get(kind)
        if fmt is None:
            raise self.fail(f"{what} has the unknown type {kind}")
        return self.number(fmt, what)

    def array(self, what: str) -> Value:
        kind = int(self.number("I", f"the item type of {what}"))
        if kind == _STRING:
            # every string takes at least its 8 bytes of length
            count = self.count("Q", (self.size - self.at) // 8, f"the item count of {what}")
            start = self.at
            if count > MAX_SHORT_ARRAY:
                self.skip_strings(count, what)
                return StringArray(start, count)
            return tuple(self.string(what) for _ in range(count))
        fmt = _FORMATS.get(kind)
        if fmt is None:
            raise self.fail(f"{what} is an array of the unknown type {kind}")
        width = struct.calcsize("<" + fmt)
        count = self.count("Q", (self.size - self.at) // width, f"the item count of {what}")
        start = self.take(count * width, what)
        items: tuple[Scalar, ...] = struct.unpack_from(f"<{count}{fmt}", self.data, start)
        return items

    def tensor(self, name: str) -> tuple[tuple[int, ...], TensorType, int]:
        n_dims = self.count("I", 4, f"the number of dimensions of tensor {name!r}")
        shape = tuple(int(self.number("Q", f"a dimension of {name!r}")) for _ in range(n_dims))
        kind = int(self.number("I", f"the type of tensor {name!r}"))
        offset = int(self.number("Q", f"the offset of tensor {name!r}"))
        known = TENSOR_TYPES.get(kind)
        if known is None:
            raise self.fail(f"tensor {name!r} has type {kind}, which no engine here can read")
        if not shape or any(dim < 1 or dim > self.size * 8 for dim in shape):
            raise self.fail(f"tensor {name!r} has the shape {list(shape)}")
        if shape[0] % known.block:
            raise self.fail(
                f"tensor {name!r} has rows of {shape[0]}, not a multiple of {known.block}"
            )
        return shape, known, offset


@contextmanager
def _open(path: Path) -> Iterator[_Reader]:
    try:
        with path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                raise GgufError(f"{path}: the file is empty.")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                yield _Reader(path, data)
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        raise GgufError(f"{path}: cannot be read ({reason}).") from exc


def read_header(path: Path) -> GgufHeader:
    """Reads and checks the header; every tensor is known to lie inside the file.
    Raises GgufError."""
    with _open(path) as reader:
        if reader.data[:4] != b"GGUF":
            raise GgufError(f"{path}: not a GGUF file (it does not begin with GGUF).")
        reader.at = 4
        version = int(reader.number("I", "the version"))
        if version not in (2, 3):
            raise GgufError(f"{path}: GGUF version {version}; only 2 and 3 can be read.")
        n_tensors = reader.count("Q", MAX_TENSORS, "the number of tensors")
        n_keys = reader.count("Q", MAX_KEYS, "the number of keys")
        metadata: dict[str, Value] = {}
        for index in range(n_keys):
            key = reader.string(f"the name of key {index}", MAX_NAME_BYTES)
            if key in metadata:
                raise reader.fail(f"the key {key!r} occurs twice")
            metadata[key] = reader.value(f"key {key!r}")
        found = {}
        for index in range(n_tensors):
            name = reader.string(f"the name of tensor {index}", MAX_NAME_BYTES)
            if name in found:
                raise reader.fail(f"the tensor {name!r} occurs twice")
            found[name] = reader.tensor(name)
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 1 <= alignment <= 65_536 or alignment % 8:
            raise reader.fail(f"general.alignment is {alignment!r}, not a multiple of 8")
        start = -(-reader.at // alignment) * alignment
        tensors = {}
        for name, (shape, kind, offset) in found.items():
            n_bytes = math.prod(shape) // kind.block * kind.bytes
            if offset % alignment:
                raise reader.fail(
                    f"tensor {name!r} begins at {offset}, off the alignment {alignment}"
                )
            if start + offset + n_bytes > reader.size:
                raise reader.fail(
                    f"tensor {name!r} ends at byte {start + offset + n_bytes} of {reader.size}"
                )
            tensors[name] = Tensor(shape, kind, start + offset, n_bytes)
        return GgufHeader(path, version, reader.size, metadata, tensors)
