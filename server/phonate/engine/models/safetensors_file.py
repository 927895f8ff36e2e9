"""Read and write .safetensors files a piece at a time, bfloat16 included.

The format: 8 bytes little-endian header length, a JSON header {name: {dtype, shape, data_offsets}},
then the raw tensors. The `safetensors` package cannot hand bfloat16 to numpy and loads a tensor
whole; a 1.7B text embedding is 622 MB, so both directions here work in pieces.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from phonate.errors import SetupError

DTYPE_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""What this reader turns into float32; other types can be listed, not read."""

MAX_HEADER_BYTES = 100_000_000
"""The limit of the reference implementation."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int
    """Bytes from the start of the file."""


def bf16_to_f32(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


class SafetensorsFile:
    """An open file. `tensors` lists it; `rows` reads float32 rows of one tensor.

    Raises SetupError, naming the file, for anything that is not a whole safetensors file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # Read, not mapped: a mapping's pages would count as this process's memory.
            self._file = path.open("rb", buffering=0)
        except OSError as error:
            raise SetupError(f"Cannot read {path}: {error.strerror}.") from error
        try:
            self._size = os.fstat(self._file.fileno()).st_size
            self.tensors = self._read_header()
        except BaseException:
            self.close()
            raise

    def _read(self, start: int, count: int) -> bytearray:
        data = bytearray(count)
        view = memoryview(data)
        self._file.seek(start)
        while view:
            got = self._file.readinto(view)
            if not got:
                raise self._broken("it got shorter while it was read")
            view = view[got:]
        return data

    def _read_header(self) -> dict[str, TensorEntry]:
        length = int.from_bytes(self._read(0, 8), "little") if self._size >= 8 else 0
        if not 2 <= length <= min(MAX_HEADER_BYTES, self._size - 8):
            raise self._broken("its header length is impossible")
        try:
            header = json.loads(self._read(8, length))
            return {
                name: self._entry(value, 8 + length)
                for name, value in header.items()
                if name != "__metadata__"
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._broken("its header cannot be read") from error

    def _entry(self, value: dict[str, Any], base: int) -> TensorEntry:
        dtype, shape = str(value["dtype"]), tuple(int(n) for n in value["shape"])
        start, stop = (base + int(n) for n in value["data_offsets"])
        expected = DTYPE_BYTES.get(dtype, 0) * math.prod(shape)
        if not base <= start <= stop <= self._size:
            raise self._broken("it ends before its last tensor does")
        if expected and expected != stop - start:
            raise self._broken("a tensor's size does not fit its shape")
        return TensorEntry(dtype, shape, start, stop)

    def _broken(self, what: str) -> SetupError:
        return SetupError(
            f"{self.path} is not a whole safetensors file: {what}. Copy or download it again."
        )

    def rows(self, name: str, first: int, count: int) -> npt.NDArray[np.float32]:
        """`count` rows from row `first`, as float32 [count, elements per row]. A row is one step
        along the first dimension."""
        entry = self.tensors[name]
        item = DTYPE_BYTES.get(entry.dtype)
        if item is None:
            raise SetupError(
                f"{self.path}: tensor {name} has type {entry.dtype}; "
                f"{', '.join(DTYPE_BYTES)} can be converted."
            )
        width = math.prod(entry.shape[1:])
        offset = entry.start + first * width * item
        code = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}[entry.dtype]
        data = np.frombuffer(self._read(offset, count * width * item), code).reshape(count, width)
        return bf16_to_f32(data) if entry.dtype == "BF16" else data.astype(np.float32, copy=False)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> SafetensorsFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class TensorToWrite:
    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: Iterable[npt.NDArray[Any]]
    """Arrays that are, one after the other, the tensor's little-endian bytes."""


def write_safetensors(path: Path, tensors: Iterable[TensorToWrite]) -> Iterator[tuple[str, int]]:
    """Write a file piece by piece; yields (tensor name, bytes just written). Exhaust it."""
    listed = list(tensors)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in listed:
        size = DTYPE_BYTES[tensor.dtype] * math.prod(tensor.shape)
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for tensor in listed:
            for piece in tensor.pieces:
                out.write(piece.data)
                yield tensor.name, piece.nbytes
        if out.tell() != 8 + len(text) + offset:
            raise ValueError(f"the pieces of {path.name} do not add up to its header")
