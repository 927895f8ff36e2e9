"""Hold the first moments of an utterance back, so that a player does not run dry at once."""

from __future__ import annotations

import numpy as np

from phonate.audio.pcm import NO_PCM, Pcm, samples_in

HOLD_MS = 160.0


class StartupBuffer:
    """int16 [n] -> int16 [n]: nothing until `hold_ms` are there, or the end; then all at once."""

    def __init__(self, sample_rate: int, *, hold_ms: float = HOLD_MS) -> None:
        """hold_ms 0 passes everything on at once."""
        self._wanted = samples_in(hold_ms, sample_rate)
        self._held: list[Pcm] = []

    def feed(self, pcm: Pcm) -> Pcm:
        if self._wanted <= 0:
            return pcm
        self._held.append(pcm)
        self._wanted -= len(pcm)
        return self._release() if self._wanted <= 0 else NO_PCM

    def finish(self) -> Pcm:
        return self._release()

    def _release(self) -> Pcm:
        self._wanted = 0
        held, self._held = self._held, []
        return np.concatenate(held) if held else NO_PCM
