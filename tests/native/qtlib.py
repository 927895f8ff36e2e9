"""libqt over cffi, straight from the header: what the tests of the C ABI share.

QT_LIBRARY names another copy of the library (a sanitizer build, say).
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cffi import FFI

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "native/include/qt.h"


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
