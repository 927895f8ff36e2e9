"""libqt over cffi, straight from the header: what the tests of the C ABI share.

QT_LIBRARY names another copy of the library (a sanitizer build, say).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cffi import FFI

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "native/include/qt.h"
OK, INVALID, MODE, FAILED, OOM, CANCELLED = 0, -1, -2, -3, -4, -5
STOP, LENGTH, CANCEL, LOOP = 1, 2, 3, 4
FRAME = 1920


@cache
def ffi() -> FFI:
    declarations = HEADER.read_text().split("/* cffi:begin */")[1].split("/* cffi:end */")[0]
    declarations = re.sub(r"/\*.*?\*/", "", declarations, flags=re.DOTALL).replace("QT_API", "")
    result = FFI()
    result.cdef(declarations)
    return result


def library_path() -> Path | None:
    if named := os.environ.get("QT_LIBRARY"):
        return Path(named)
    built = [p for s in ("so", "dylib") for p in ROOT.glob(f"native/build*/**/libqt.{s}")]
    built += [p for s in ("so", "dylib") for p in ROOT.glob(f"server/phonate/_native/libqt.{s}")]
    return max(built, key=lambda p: p.stat().st_mtime, default=None)


@cache
def load() -> Any:
    path = library_path()
    if path is None:
        pytest.skip("libqt is not built (make native)")
    return ffi().dlopen(str(path))


def last_error() -> str:
    return str(ffi().string(load().qt_last_error()).decode())


@dataclass
class Params:
    """A struct and what its pointers point at."""

    struct: Any
    kept: list[Any] = field(default_factory=list)

    def set(self, **fields: Any) -> Params:
        """Strings, float and int arrays become C memory that lives as long as this object."""
        for name, value in fields.items():
            setattr(self.struct, name, self._c(value))
        return self

    def _c(self, value: Any) -> Any:
        if isinstance(value, str):
            value = value.encode()
        if isinstance(value, bytes):
            value = ffi().new("char[]", value)
        elif isinstance(value, np.ndarray):
            array = np.ascontiguousarray(value)
            self.kept.append(array)
            kind = {"float32": "float *", "int32": "int32_t *"}[str(array.dtype)]
            return ffi().cast(kind, array.ctypes.data)
        elif value is None:
            return ffi().NULL
        self.kept.append(value)
        return value


def tts_params(**fields: Any) -> Params:
    struct = ffi().new("qt_tts_params *")
    load().qt_tts_default_params(struct)
    return Params(struct).set(**fields)


def init_params(talker: Path | str, codec: Path | str) -> Params:
    struct = ffi().new("qt_init_params *")
    load().qt_init_default_params(struct)
    struct.talker_kv_size = 512
    struct.n_threads = 2
    return Params(struct).set(talker_path=str(talker), codec_path=str(codec))


@dataclass
class Spoken:
    status: int
    error: str
    chunks: list[np.ndarray]
    result: Any

    @property
    def samples(self) -> np.ndarray:
        return np.concatenate([np.empty(0, np.float32), *self.chunks])

    @property
    def frames(self) -> int:
        return int(self.result.n_frames)


class Context:
    """A loaded model; raises with the library's message when it cannot be loaded."""

    def __init__(self, talker: Path | str, codec: Path | str, **init: Any) -> None:
        params = init_params(talker, codec).set(**init)
        self.handle = load().qt_init(params.struct)
        if self.handle == ffi().NULL:
            raise RuntimeError(last_error())

    def close(self) -> None:
        load().qt_free(self.handle)
        self.handle = ffi().NULL

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def buffered(self, **fields: Any) -> Spoken:
        params, out = tts_params(**fields), ffi().new("qt_audio *")
        status = load().qt_synthesize(self.handle, params.struct, out)
        chunks = []
        if out.samples != ffi().NULL:
            raw = ffi().buffer(out.samples, out.n_samples * 4)
            chunks = [np.frombuffer(raw, np.float32).copy()]
            assert (out.sample_rate, out.channels) == (24000, 1)
        load().qt_audio_free(out)
        return Spoken(status, last_error(), chunks, load().qt_last_result())

    def streamed(
        self,
        on_chunk: Callable[[int], bool] = lambda _: True,
        cancel: Callable[[], bool] | None = None,
        flow: Callable[[], int] | None = None,
        **fields: Any,
    ) -> Spoken:
        """on_chunk is told how many chunks have come and says whether to go on."""
        chunks: list[np.ndarray] = []

        @ffi().callback("qt_audio_chunk_cb")  # type: ignore[misc]
        def take(samples: Any, n: int, _: Any) -> bool:
            chunks.append(np.frombuffer(ffi().buffer(samples, n * 4), np.float32).copy())
            return on_chunk(len(chunks))

        params = tts_params(on_chunk=take, **fields)
        if cancel:
            params.set(cancel=ffi().callback("qt_cancel_cb", lambda _: cancel()))
        if flow:
            params.set(flow=ffi().callback("qt_flow_cb", lambda _: flow()))
        status = load().qt_synthesize(self.handle, params.struct, ffi().NULL)
        return Spoken(status, last_error(), chunks, load().qt_last_result())


GREEDY = {"do_sample": False, "subtalker_do_sample": False}
