"""The two GGUF files that make a model: a pair of paths, checked before anybody loads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from phonate.errors import SetupError

GGUF_MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    talker: Path
    codec: Path


def check_gguf(path: Path, param: str) -> Path:
    """The path, if it is a readable file that begins like a GGUF; else SetupError."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(GGUF_MAGIC))
    except OSError as error:
        raise SetupError(f"--{param} {path}: {error.strerror}.", param=param) from error
    if magic != GGUF_MAGIC:
        raise SetupError(
            f"--{param} {path} is not a GGUF file. `phonate convert` makes one from a checkpoint, "
            "`phonate pull` downloads one.",
            param=param,
        )
    return path
