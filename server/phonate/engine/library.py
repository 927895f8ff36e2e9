"""Find a native library, load it, and learn what it is before anything is read from it.

Three kinds of library speak the `qt_` C ABI of native/include/qt.h: ours (ABI 6), qwentts.cpp
builds (ABI 4) and the wheels derived from it (ABI 5). Which one is at hand is learned by letting
the two qt_*_default_params functions write into oversized buffers: the version is the int at
offset 0, and the bytes that were written must be exactly that version's struct. What does not fit
is refused before a struct is read, since another layout would mean wild pointers. How the kinds
differ in behaviour is a table, `TRAITS`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import cffi

from phonate.engine.base import TextLayout
from phonate.engine.native_log import NativeLog
from phonate.errors import SetupError

NATIVE_DIR = Path(__file__).resolve().parent.parent / "_native"
"""Where our own library and its header lie in an installed package."""
_SOURCE_HEADER = Path(__file__).resolve().parents[3] / "native" / "include" / "qt.h"

_SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
_PREFIX = "" if sys.platform == "win32" else "lib"
OUR_NAME = f"{_PREFIX}qt{_SUFFIX}"
_WHEEL_NAMES = tuple(
    dict.fromkeys(
        (f"{_PREFIX}qwen{_SUFFIX}", f"libqwen{_SUFFIX}", f"qwen{_SUFFIX}", f"libqwen{_SUFFIX}.0")
    )
)
WHEELS = {
    "qwentts_cpp_cpu": "realtimetts-qwen-native-cpu",
    "qwentts_cpp": "realtimetts-qwen-native",
}
"""Importable module -> the distribution that installs it. The second is the CUDA build."""

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
_OPTIONAL = ("qt_cpu_only", "qt_init_cpu", "qt_init_cpu_ex")

_PROBE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Traits:
    """How one kind of library behaves; what it may be passed."""

    label: str
    abi: int
    context_limit: int
    """Prompt rows + frames; 0 = what it was told at init. Beyond it qwentts.cpp fails in
    mid-stream, and takes the other lanes of a batch with it."""
    min_reference_samples: int = 1920
    """Shorter reference audio ends the process (500 samples), or is an error (100)."""
    checks_values: bool = False
    """False: NaN, a penalty of 0 and codes out of range end the process. Everything is checked
    here whichever it is; this says how wide the numbers may be."""
    obeys_special_tokens: bool = True
    """`<|im_end|>` in a text ends it; see `spoken` in qwen_checks."""
    subtalker_filters: bool = False
    """subtalker_top_k and subtalker_top_p have an effect."""
    onset_silence: bool = False
    first_chunk_frames: bool = False
    text_layouts: tuple[TextLayout, ...] = ("auto", "non_streaming")
    any_codec_size: bool = False
    """Reads the codec's sizes from the file instead of having them built in."""
    reports_results: bool = False
    """qt_last_result tells frames, tokens and why it ended."""
    has_flow: bool = False
    """A lane can say "wait" without blocking the others."""
    waits_for_place: bool = False
    """Takes any number of calls at once and queues them; the others take max_batch."""
    n_threads_at_init: bool = False


TRAITS = {
    4: (_qwentts := Traits("qwentts.cpp", abi=4, context_limit=4096)),
    5: replace(_qwentts, label="qwentts.cpp (RealtimeTTS)", abi=5, onset_silence=True),
    6: Traits(
        "phonate",
        abi=6,
        context_limit=0,
        checks_values=True,
        obeys_special_tokens=False,
        subtalker_filters=True,
        onset_silence=True,
        first_chunk_frames=True,
        text_layouts=("auto", "streaming", "non_streaming"),
        any_codec_size=True,
        reports_results=True,
        has_flow=True,
        waits_for_place=True,
        n_threads_at_init=True,
    ),
}


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


# ---------------------------------------------------------------- finding


def candidates() -> Iterator[tuple[str, Path]]:
    """Installed libraries, best first: (short name, path). Imports none of their packages."""
    if (NATIVE_DIR / OUR_NAME).is_file():
        yield "phonate", NATIVE_DIR / OUR_NAME
    for module in WHEELS:
        folder = _package_folder(module)
        if folder is None:
            continue
        for name in _WHEEL_NAMES:
            if (folder / "lib" / name).is_file():
                yield module, folder / "lib" / name
                break


def _package_folder(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    places = spec.submodule_search_locations if spec else None
    return Path(next(iter(places))) if places else None


def find_library(wanted: str | None = None, device: str = "auto") -> Library:
    """The library to use. `wanted`: a path, a folder that holds one, or a short name from
    `candidates`; None takes the best that fits `device` (auto, cpu, gpu). Raises SetupError."""
    found = dict(candidates())
    if wanted is not None:
        library = open_library(found.get(wanted) or _explicit(Path(wanted).expanduser(), found))
        if device not in ("auto", library.device):
            raise SetupError(
                f"{library.path} is built for the {library.device}, but --device says {device}. "
                "Drop one of the two options."
            )
        return library
    problems = []
    for path in found.values():
        try:
            library = open_library(path)
        except SetupError as exc:
            problems.append(exc.message)
            continue
        if device in ("auto", library.device):
            return library
        problems.append(f"{path} is built for the {library.device}, not the {device}.")
    extra = "qwen-cuda" if device == "gpu" else "qwen-cpu"
    raise SetupError(
        " ".join(
            [
                "There is no native library for Qwen3-TTS here"
                + (f" that runs on the {device}." if device != "auto" else "."),
                f"Install one with: pip install 'phonate[{extra}]', or name one with --library.",
                *problems,
            ]
        )
    )


def _explicit(path: Path, found: dict[str, Path]) -> Path:
    if path.is_file():
        return path
    for folder in (path, path / "lib"):
        for name in (OUR_NAME, *_WHEEL_NAMES):
            if (folder / name).is_file():
                return folder / name
    known = ", ".join(found) or "none"
    raise SetupError(
        f"--library {path}: there is no such library. Give the path of a shared library "
        f"({OUR_NAME}, {_WHEEL_NAMES[0]}) or an installed one by name (here: {known})."
    )


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
    _preload_cuda(path)
    try:
        return foreign().dlopen(str(path), foreign().RTLD_NOW)
    except OSError as exc:
        raise SetupError(
            f"{path} cannot be loaded: {exc}. It may be built for another system, or miss a "
            "library it depends on."
        ) from exc


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
        folder = _package_folder(module)
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
