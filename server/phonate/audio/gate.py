"""Hold an utterance back until it is known to be audible.

What leaves the gate commits the server to a status 200, so silence must not leave it: an engine
that produced nothing a person can hear has failed, and its caller says so.
"""

from __future__ import annotations

import numpy as np

from phonate.audio.pcm import NO_PCM, Pcm, samples_in

THRESHOLD = 80.0
BLOCK_MS = 20.0


class SilenceGate:
    """int16 [n] -> int16 [n] once a block was loud, quiet start included; else nothing at all.

    Blocks are counted from the first sample, so that the cutting of the input does not matter.
    After finish(), `audible` says how it went.
    """

    def __init__(
        self, sample_rate: int, *, threshold: float = THRESHOLD, block_ms: float = BLOCK_MS
    ) -> None:
        """A block is loud when mean |int16| >= threshold; 0 opens the gate for anything."""
        self._threshold = threshold
        self._block = max(1, samples_in(block_ms, sample_rate))
        self._held: list[Pcm] = []
        self._unchecked: Pcm = NO_PCM
        """The start of a block that is not complete yet; also the end of what is held."""
        self.audible = threshold <= 0

    def feed(self, pcm: Pcm) -> Pcm:
        if self.audible or not len(pcm):
            return pcm
        self._held.append(pcm)
        pending = np.concatenate((self._unchecked, pcm))
        n = len(pending) // self._block
        blocks = pending[: n * self._block].reshape(n, self._block)
        self._unchecked = pending[n * self._block :]
        # In float: |-32768| has no int16.
        self.audible = bool(
            np.any(np.abs(blocks.astype(np.float32)).mean(axis=1) >= self._threshold)
        )
        return self._release()

    def finish(self) -> Pcm:
        """What is left if the last, shorter block (its missing samples count as 0) was loud."""
        if not self.audible and len(self._unchecked):
            total = float(np.abs(self._unchecked.astype(np.float32)).sum())
            self.audible = total / self._block >= self._threshold
        return self._release()

    def _release(self) -> Pcm:
        if not self.audible or not self._held:
            return NO_PCM
        held, self._held, self._unchecked = np.concatenate(self._held), [], NO_PCM
        return held
