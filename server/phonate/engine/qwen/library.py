"""Load a native library, and learn what it is before anything is read from it.

Three kinds of library speak the `qt_` C ABI of native/include/qt.h: ours (ABI 6), qwentts.cpp
builds (ABI 4) and the wheels derived from it (ABI 5). Which one is at hand is learned by letting
the two qt_*_default_params functions write into oversized buffers: the version is the int at
offset 0, and the bytes that were written must be exactly that version's struct. What does not fit
is refused before a struct is read, since another layout would mean wild pointers.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import cffi

from phonate.engine.qwen.library_traits import TRAITS, Traits
from phonate.engine.qwen.native_log import NativeLog
from phonate.errors import SetupError

NATIVE_DIR = Path(__file__).resolve().parents[2] / "_native"
"""Where our own library and its header lie in an installed package."""
_SOURCE_HEADER = Path(__file__).resolve().parents[4] / "native" / "include" / "qt.h"

_EXTRA_DECLARATIONS = """
    typedef struct qt_cpu_options {
        int version; int codec_threads; int stream_frames;
        uint64_t worker_mask; uint64_t codec_mask;
    } qt_cpu_options;
    int qt_cpu_only(void);
    qt_context *qt_init_cpu(const qt_init_params *params, int n_threads);
    qt_context *qt_init_cpu_ex(const qt_init_params *params, int n_threads, const qt_cpu_options *);
"""
"""What the CPU wheel adds to the ABI; not part of our header."""

_REQUIRED = (
    "qt_version",
    "qt_last_error",
    "qt_log_set",
    "qt_init_default_params",
    "qt_tts_default_params",
    "qt_init",
    "qt_free",
    "qt_synthesize",
    "qt_audio_free",
    "qt_extract_voice_ref",
    "qt_voice_ref_free",
)
_OURS = (
    "qt_build_info",
    "qt_last_result",
    "qt_init_default_params_abi",
    "qt_tts_default_params_abi",
)
_OPTIONAL = (
    "qt_cpu_only",
    "qt_init_cpu",
    "qt_init_cpu_ex",
    "qt_measure_machine",
    "qt_frame_costs",
)

_PROBE_BYTES = 4096


def declarations(header: str) -> str:
    """What cffi's cdef() takes, cut from the text of qt.h (its marks say where)."""
    try:
        body = header.split("/* cffi:begin */", 1)[1].split("/* cffi:end */", 1)[0]
    except IndexError:
        raise SetupError("qt.h has no region between cffi:begin and cffi:end.") from None
    body = re.sub(r"/\*.*?\*/", " ", body, flags=re.DOTALL)
    return re.sub(r"\bQT_API\b", "", body)


@cache
def foreign() -> cffi.FFI:
    """The one FFI object of the process, with everything declared."""
    for path in (NATIVE_DIR / "qt.h", _SOURCE_HEADER):
        if path.is_file():
            ffi = cffi.FFI()
            ffi.cdef(declarations(path.read_text(encoding="utf-8")) + _EXTRA_DECLARATIONS)
            return ffi
    raise SetupError(
        f"The native engine's header qt.h is missing from {NATIVE_DIR}. Reinstall phonate."
    )


class Library:
    """A vetted, loaded library. `lib` is cffi's handle, `traits` what to expect of it."""

    def __init__(self, path: Path, lib: Any, traits: Traits, symbols: frozenset[str]) -> None:
        self.path = path
        self.lib = lib
        self.traits = traits
        self.symbols = symbols
        self.log = NativeLog(logging.getLogger("phonate.native"))
        self._log_callback = foreign().callback("qt_log_cb", self._on_log)
        lib.qt_log_set(self._log_callback, foreign().NULL)

    def _on_log(self, level: int, message: Any, _user_data: Any) -> None:
        with contextlib.suppress(Exception):  # nothing may unwind into C
            self.log.line(level, _text(message))

    @property
    def abi(self) -> int:
        return self.traits.abi

    @property
    def version(self) -> str:
        return _text(self.lib.qt_version())

    @property
    def device(self) -> str:
        """cpu or gpu: what it was built for."""
        if self.traits.abi == 6 or ("qt_cpu_only" in self.symbols and self.lib.qt_cpu_only()):
            return "cpu"
        backends = ("cuda", "vulkan", "sycl", "hip", "metal")
        names = [name.name.lower() for name in self.path.parent.iterdir()]
        return "gpu" if any(f"ggml-{b}" in name for b in backends for name in names) else "cpu"

    @property
    def build_info(self) -> str:
        """JSON for ours, the version for others."""
        if "qt_build_info" in self.symbols:
            return _text(self.lib.qt_build_info())
        return self.version

    def last_error(self) -> str:
        """Of this thread. On qwentts.cpp it may be empty, or left over from an earlier call."""
        return _text(self.lib.qt_last_error())


def _text(pointer: Any) -> str:
    ffi = foreign()
    if pointer == ffi.NULL:
        return ""
    return bytes(ffi.string(pointer)).decode("utf-8", errors="replace")


# ---------------------------------------------------------------- loading and vetting

_opened: dict[Path, Library] = {}
_opening = threading.Lock()


def open_library(path: Path) -> Library:
    """Loads and vets one library; a second call returns the same object. Raises SetupError."""
    path = path.resolve()
    with _opening:
        if path not in _opened:
            lib = _load(path)
            symbols = frozenset(
                name for name in (*_REQUIRED, *_OURS, *_OPTIONAL) if _has(lib, name)
            )
            _opened[path] = Library(path, lib, _vet(path, lib, symbols), symbols)
        return _opened[path]


def _load(path: Path) -> Any:
    if sys.platform == "win32":  # its neighbours are looked for where we say, not where it lies
        _keep_alive.append(os.add_dll_directory(str(path.parent)))
    _preload_cuda(path)
    try:
        return foreign().dlopen(str(path), foreign().RTLD_NOW)
    except OSError as exc:
        said = str(exc).split("Additionally", 1)[0].strip().rstrip(".")
        cure = (
            "It needs the CUDA runtime and an NVIDIA driver: pip install 'phonate[qwen-cuda]'."
            if re.search(r"libcu(da|dart|blas)", said)
            else "It may be built for another system, or miss a library it depends on."
        )
        raise SetupError(f"{path} cannot be loaded: {said}. {cure}") from exc


def package_folder(module: str) -> Path | None:
    """Where an installed package lies, without importing it."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    places = spec.submodule_search_locations if spec else None
    return Path(next(iter(places))) if places else None


def _preload_cuda(path: Path) -> None:
    """The CUDA build links against libraries that pip puts into packages of their own, where the
    loader does not look. Harmless when they are absent."""
    if not sys.platform.startswith("linux") or not any(path.parent.glob("libggml-cuda.so*")):
        return
    for module, pattern in (
        ("nvidia.cuda_runtime", "libcudart.so.*"),
        ("nvidia.cublas", "libcublasLt.so.*"),
        ("nvidia.cublas", "libcublas.so.*"),
    ):
        folder = package_folder(module)
        for dependency in sorted((folder / "lib").glob(pattern)) if folder else ():
            with contextlib.suppress(OSError):
                _keep_alive.append(
                    foreign().dlopen(str(dependency), foreign().RTLD_NOW | foreign().RTLD_GLOBAL)
                )


_keep_alive: list[Any] = []


def _has(lib: Any, name: str) -> bool:
    try:
        getattr(lib, name)
    except AttributeError:
        return False
    return True


def _vet(path: Path, lib: Any, symbols: frozenset[str]) -> Traits:
    missing = [name for name in _REQUIRED if name not in symbols]
    if missing:
        raise SetupError(
            f"{path} is not a Qwen3-TTS library: it lacks {', '.join(missing)}. "
            "Use the one of 'phonate[qwen-cpu]', or a qwentts.cpp build with ABI 4 or 5."
        )
    init, tts = _probe(lib.qt_init_default_params), _probe(lib.qt_tts_default_params)
    traits = TRAITS.get(tts.version)
    if (
        traits is None
        or init.version != tts.version
        or init.end not in _ends("qt_init_params", traits.abi)
        or tts.end not in _ends("qt_tts_params", traits.abi)
        or (traits.abi == 6 and not symbols.issuperset(_OURS))
    ):
        raise SetupError(
            f"{path} has an unknown binary interface (version {init.version}/{tts.version}, "
            f"structs of {init.end} and {tts.end} bytes); known are ABI 4 and 5 of qwentts.cpp and "
            "ABI 6 of phonate. Update phonate, or install 'phonate[qwen-cpu]'."
        )
    return traits


@dataclass(frozen=True, slots=True)
class _Probe:
    version: int
    end: int
    """One past the last byte that was written."""


def _probe(fill_defaults: Callable[[Any], None]) -> _Probe:
    """Lets a default function write into a large buffer, once over zeros and once over 0xA5."""
    ffi = foreign()
    kind = ffi.typeof(fill_defaults).args[0]
    ends, version = [], 0
    for background in (0x00, 0xA5):
        buffer = ffi.new("unsigned char[]", bytes([background]) * _PROBE_BYTES)
        fill_defaults(ffi.cast(kind, buffer))
        written = bytes(ffi.buffer(buffer, _PROBE_BYTES))
        ends.append(len(written.rstrip(bytes([background]))))
        version = int.from_bytes(written[:4], sys.byteorder, signed=True)
    return _Probe(version, max(ends))


_LAST_FIELD = {
    "qt_init_params": {4: "codec_chunk_sec", 5: "codec_chunk_sec", 6: "stream_frames_max"},
    "qt_tts_params": {4: "ref_T", 5: "onset_silence_ban_frames", 6: "flow_user_data"},
}


def _ends(struct: str, abi: int) -> range:
    """Where a version's struct may end: after its last field, or after the padding behind it."""
    ffi = foreign()
    name = _LAST_FIELD[struct][abi]
    fields = dict(ffi.typeof(struct).fields)
    end = fields[name].offset + ffi.sizeof(fields[name].type)
    align = ffi.alignof("void *")
    return range(end, -(-end // align) * align + 1)
