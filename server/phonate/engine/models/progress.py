"""How long work tells of its progress: one callback, so that a terminal or a test can listen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]
"""(what is being done, bytes done, bytes in all). In all is 0 when it is not known."""


def silent(what: str, done: int, total: int) -> None:
    """Nobody listens."""
