"""The C++ test hooks library (native/tests/hooks_*.cpp), for comparing engine parts with oracles.

`make native` builds it; QT_TESTHOOKS names another copy (a sanitizer build, say).
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


def library_path() -> Path | None:
    """The library named by QT_TESTHOOKS, else the newest one below native/build*."""
    if named := os.environ.get("QT_TESTHOOKS"):
        return Path(named)
    built = [*ROOT.glob("native/build*/**/*qt_testhooks*.so"),
             *ROOT.glob("native/build*/**/*qt_testhooks*.dylib"),
             *ROOT.glob("native/build*/**/*qt_testhooks*.dll")]  # fmt: skip
    return max(built, key=lambda p: p.stat().st_mtime, default=None)


@cache
def load() -> ctypes.CDLL:
    path = library_path()
    if path is None:
        pytest.skip("the native test hooks are not built (make native)")
    lib = ctypes.CDLL(str(path))
    lib.hook_error.restype = ctypes.c_char_p
    return lib


def error() -> str:
    return str(load().hook_error().decode())


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    """The address of a contiguous array that outlives the call."""
    if not array.flags.c_contiguous:
        raise ValueError("the array is not contiguous")
    return ctypes.c_void_p(array.ctypes.data)
