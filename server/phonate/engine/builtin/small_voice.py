"""What the built-in engine asks of each of its voices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from phonate.engine.base import CancelToken, Samples, Speaker
from phonate.engine.builtin.pieces import Break, Piece

SAMPLE_RATE = 24_000


class Spoken(NamedTuple):
    """A stretch of audio at 24 kHz, what ends it, and how many tokens of text it took."""

    audio: Samples
    end: Break
    n_tokens: int


class SmallVoice(Protocol):
    """One speaker of this engine. `render` speaks one piece, `wording` prepares a whole text."""

    @property
    def speaker(self) -> Speaker: ...

    def wording(self, text: str) -> str:
        """Plain Latin text -> words as this voice must see them."""
        ...

    def name_marks(self, text: str) -> str:
        """How a text of marks only is read out; "" when it cannot be."""
        ...

    def render(
        self, piece: Piece, rng: np.random.Generator, token: CancelToken, skipped: list[str]
    ) -> Iterator[Spoken]:
        """Audio of one piece, in order; ends early once the token is set. Appends to `skipped`
        the words it failed to read."""
        ...

    def close(self) -> None: ...
