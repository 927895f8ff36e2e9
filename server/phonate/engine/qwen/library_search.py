"""Which native library to use: one that was named, or the best of what is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from phonate.engine.qwen.library import NATIVE_DIR, Library, open_library, package_folder
from phonate.errors import SetupError

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


def candidates() -> Iterator[tuple[str, Path]]:
    """Installed libraries, best first: (short name, path). Imports none of their packages."""
    if (NATIVE_DIR / OUR_NAME).is_file():
        yield "phonate", NATIVE_DIR / OUR_NAME
    for module in WHEELS:
        folder = package_folder(module)
        if folder is None:
            continue
        for name in _WHEEL_NAMES:
            if (folder / "lib" / name).is_file():
                yield module, folder / "lib" / name
                break


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
