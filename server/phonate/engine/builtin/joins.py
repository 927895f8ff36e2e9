"""Pieces of speech -> one stream: the quiet around each is trimmed, the pauses are ours, and both
edges are faded, so that no join clicks."""

from __future__ import annotations

import numpy as np

from phonate.engine.base import Samples

WINDOW_S = 0.005
QUIET = 0.001
"""Mean |x| of a window below which it is no speech. The breath of an f or th begins near 0.001."""
KEEP_BEFORE_S = 0.030
KEEP_AFTER_S = 0.060
FADE_S = 0.005
AUDIBLE = 80 / 32767
"""Mean |x| of a block that a listener, and the silence gate, call audible."""
AUDIBLE_BLOCK_S = 0.02


def join_ready(audio: Samples, pause_s: float, sample_rate: int) -> Samples:
    """`audio` without the quiet around it, faded at both edges, then silence so that `pause_s`
    seconds pass until the next piece speaks. Empty when there is no speech in it."""
    audio = np.nan_to_num(np.asarray(audio, dtype=np.float32), posinf=1.0, neginf=-1.0)
    levels = block_levels(audio, sample_rate, WINDOW_S)
    loud = np.flatnonzero(levels > QUIET)
    if not loud.size:
        return np.zeros(0, dtype=np.float32)
    window = round(WINDOW_S * sample_rate)
    start = max(0, int(loud[0]) * window - round(KEEP_BEFORE_S * sample_rate))
    stop = min(len(audio), (int(loud[-1]) + 1) * window + round(KEEP_AFTER_S * sample_rate))
    speech = faded_out(audio[start:stop], sample_rate)
    speech = faded_out(speech[::-1], sample_rate)[::-1]
    silence_s = max(0.0, pause_s - KEEP_BEFORE_S - KEEP_AFTER_S)
    return np.concatenate([speech, np.zeros(round(silence_s * sample_rate), dtype=np.float32)])


def faded_out(audio: Samples, sample_rate: int) -> Samples:
    """A copy whose last 5 ms fall to zero in a line."""
    audio = audio.copy()
    n_ramp = min(round(FADE_S * sample_rate), len(audio))
    audio[len(audio) - n_ramp :] *= np.linspace(1, 0, n_ramp, dtype=np.float32)
    return audio


def is_audible(audio: Samples, sample_rate: int) -> bool:
    """Does at least one 20 ms block reach the level of the silence gate?"""
    levels = block_levels(audio, sample_rate, AUDIBLE_BLOCK_S)
    return bool(levels.size) and bool(levels.max() >= AUDIBLE)


def block_levels(audio: Samples, sample_rate: int, block_s: float) -> Samples:
    """Mean |x| of every block, shape [ceil(n_samples / block)]; the last one is padded by zeros."""
    block = round(block_s * sample_rate)
    padded = np.pad(np.abs(audio), (0, -len(audio) % block))
    return np.asarray(padded.reshape(-1, block).mean(axis=1), dtype=np.float32)
