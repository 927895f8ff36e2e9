"""Speak faster or slower at the same pitch, while the audio is being made.

FFmpeg's `atempo` does it by overlapping windows of about 1/24 s. One instance is good for 0.5..2
(above that it skips audio instead of blending it), so stronger changes are several equal steps.
Measured at 24 kHz: first output after 60..80 ms of input per step; up to 16 ms too long above 1;
below 1 the windows at the start cost up to 73 ms, which silence at the end makes up for.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import av
import numpy as np

from phonate.audio.pcm import NO_PCM, Pcm, samples_in

MIN_SPEED, MAX_SPEED = 0.25, 4.0

_BLOCK_MS = 20.0
"""What the filter is fed at a time, whatever the caller's pieces are: same input, same output."""

_ENOUGH_MS = 400.0
"""Input shorter than the windows would come out as nothing; silence fills it up to this."""

_OVERRUN_MS = 20.0
"""How much later than n / speed real sound can still come out."""


class Speed:
    """int16 [n] -> int16 [n / speed], at most 20 ms longer, never shorter. 1.0 passes through."""

    def __init__(self, sample_rate: int, speed: float) -> None:
        """Raises ValueError outside 0.25..4."""
        if not MIN_SPEED <= speed <= MAX_SPEED:
            raise ValueError(f"speed must be within {MIN_SPEED}..{MAX_SPEED}, not {speed}.")
        self._rate = sample_rate
        self._speed = speed
        self._block = samples_in(_BLOCK_MS, sample_rate)
        self._held: Pcm = NO_PCM
        self._n_in = self._n_out = 0
        self._graph = None if speed == 1.0 else self._build()

    def _build(self) -> Any:
        steps = math.ceil(abs(math.log2(self._speed)))
        factor = self._speed ** (1 / steps)
        graph: Any = av.filter.Graph()
        self._source = graph.add_abuffer(
            sample_rate=self._rate, format="s16", layout="mono", time_base=Fraction(1, self._rate)
        )
        chain = [graph.add("atempo", f"{factor:.9f}") for _ in range(steps)]
        self._sink = graph.add("abuffersink")
        graph.link_nodes(self._source, *chain, self._sink).configure()
        return graph  # Kept alive by the caller: its nodes do not own it.

    def feed(self, pcm: Pcm) -> Pcm:
        if self._graph is None:
            return pcm
        pending = np.concatenate((self._held, pcm))
        whole = len(pending) // self._block * self._block
        self._held = pending[whole:]
        return self._filtered(pending[:whole])

    def finish(self) -> Pcm:
        if self._graph is None:
            return NO_PCM
        n_in = self._n_in + len(self._held)
        wanted = round(n_in / self._speed)
        longest = wanted + samples_in(_OVERRUN_MS, self._rate)
        filler = np.zeros(
            max(0, samples_in(_ENOUGH_MS, self._rate) - n_in) if n_in else 0, np.int16
        )
        n_before = self._n_out
        rest = self._filtered(np.concatenate((self._held, filler)), last=True)
        rest = rest[: max(0, longest - n_before)]
        missing = max(0, wanted - n_before - len(rest))
        self._graph = self._source = self._sink = None
        return np.concatenate((rest, np.zeros(missing, np.int16)))

    def _filtered(self, pcm: Pcm, *, last: bool = False) -> Pcm:
        out: list[Pcm] = []
        for start in range(0, len(pcm), self._block):
            block = np.ascontiguousarray(pcm[np.newaxis, start : start + self._block])
            frame: Any = av.AudioFrame.from_ndarray(block, format="s16", layout="mono")
            frame.sample_rate = self._rate
            frame.time_base = Fraction(1, self._rate)
            frame.pts = self._n_in
            self._n_in += block.shape[1]
            self._source.push(frame)
            out += self._pull()
        if last:
            self._source.push(None)
            out += self._pull()
        self._n_out += sum(map(len, out))
        return np.concatenate(out) if out else NO_PCM

    def _pull(self) -> list[Pcm]:
        out = []
        while True:
            try:
                out.append(self._sink.pull().to_ndarray()[0])
            except (av.BlockingIOError, av.EOFError):
                return out
