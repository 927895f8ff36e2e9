"""Change the sample rate: soxr at high quality, streamed or whole with the same result."""

from __future__ import annotations

import numpy as np
import soxr

from phonate.audio.pcm import NO_PCM, Floats, Pcm, to_floats, to_pcm

RATES = (8000, 16000, 22050, 24000, 44100, 48000)
"""What a client may ask for."""


class Resampler:
    """int16 [n] at `source_rate` -> int16 [about n * target_rate / source_rate], +-1 sample.

    Works in float inside: soxr's own 16-bit output is dithered, ours is rounded once. Equal rates
    pass through untouched.
    """

    def __init__(self, source_rate: int, target_rate: int) -> None:
        self._stream = (
            None
            if source_rate == target_rate
            else soxr.ResampleStream(source_rate, target_rate, 1, dtype="float32", quality="HQ")
        )

    def feed(self, pcm: Pcm) -> Pcm:
        if self._stream is None or not len(pcm):
            return pcm
        return to_pcm(self._stream.resample_chunk(to_floats(pcm)))

    def finish(self) -> Pcm:
        if self._stream is None:
            return NO_PCM
        rest = to_pcm(self._stream.resample_chunk(np.zeros(0, np.float32), last=True))
        self._stream = None
        return rest


def resample(x: Floats, source_rate: int, target_rate: int) -> Floats:
    """Whole float audio [n] at once."""
    if source_rate == target_rate or not len(x):
        return x
    out: Floats = soxr.resample(x, source_rate, target_rate, quality="HQ")
    return out
