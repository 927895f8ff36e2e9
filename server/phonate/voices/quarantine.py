"""Where damaged folders go: out of service, not out of the world, so that a person can look.

Beside each lies `<folder>.txt` with the reason. They are still somebody's voice: removing the voice
removes them too.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from phonate.voices.folders import (
    is_plain_folder,
    make_folder,
    read_file,
    remove_tree,
    replace_file,
)
from phonate.voices.inventory import Problem, Trouble
from phonate.voices.manifest import Damaged

FOLDER = "quarantine"
MAX_REASON_BYTES = 1000


class Quarantine:
    """Of one shelf. The caller holds the shelf's lock while it changes anything; OSError passes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._place = root / FOLDER

    def take(self, folder: str, reason: str) -> None:
        """Move a folder here (a symlink itself, not its target)."""
        make_folder(self._place)
        os.rename(self._root / folder, self._place / folder)
        with contextlib.suppress(OSError):  # the words matter less than the move
            replace_file(self._place / f"{folder}.txt", reason.encode()[:MAX_REASON_BYTES])

    def remove(self, id: str) -> bool:
        """Everything that was set aside under an id. False: nothing was."""
        mine = [path for path in self._files() if path.name.startswith(f"{id}.")]
        for path in mine:
            remove_tree(path)
        return bool(mine)

    def problems(self) -> tuple[Problem, ...]:
        return tuple(
            Problem(p.name, Trouble.SET_ASIDE, self._reason(p), p.name.partition(".")[0])
            for p in self._files()
            if not p.name.endswith(".txt")
        )

    def _reason(self, path: Path) -> str:
        with contextlib.suppress(OSError, ValueError, Damaged):
            return read_file(path.parent / f"{path.name}.txt", max_bytes=MAX_REASON_BYTES).decode()
        return "it is damaged"

    def _files(self) -> list[Path]:
        return sorted(self._place.iterdir()) if is_plain_folder(self._place) else []
