"""Fade the end of a fragment out, so that the next one joins without a click.

A fragment's end is only known once it has come, so its last 15 ms are held back all along. Not in
the first second, where every millisecond counts: a short fragment stays as the engine made it.
"""

from __future__ import annotations

import numpy as np

from phonate.audio.pcm import NO_FLOATS, Floats, finite, samples_in

AFTER_MS = 1000.0
FADE_MS = 15.0


class FadeOut:
    """float32 [n] -> float32 [n]; linear to 0 at the last sample."""

    def __init__(
        self,
        sample_rate: int,
        *,
        after_ms: float = AFTER_MS,
        fade_ms: float = FADE_MS,
        enabled: bool = True,
    ) -> None:
        self._free = samples_in(after_ms, sample_rate)
        """Samples that may still pass without anything being held back."""
        self._fade = samples_in(fade_ms, sample_rate) if enabled else 0
        self._held: Floats = NO_FLOATS

    def feed(self, x: Floats) -> Floats:
        x = finite(x)
        if not self._fade:
            return x
        passed, x = x[: self._free], x[self._free :]
        self._free -= len(passed)
        if not len(x):
            return passed
        x = np.concatenate((self._held, x))
        ready = max(0, len(x) - self._fade)
        self._held = x[ready:]
        return np.concatenate((passed, x[:ready]))

    def finish(self) -> Floats:
        held, self._held = self._held, NO_FLOATS
        n = len(held)
        return held * np.arange(n - 1, -1, -1, dtype=np.float32) / np.float32(n) if n else NO_FLOATS
