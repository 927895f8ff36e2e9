"""Is a recording fit to be the reference of a voice, and what is done to it."""

from __future__ import annotations

from typing import BinaryIO

import numpy as np

from phonate.audio.decode import MAX_SECONDS, Decoded, decode
from phonate.audio.pcm import Floats, samples_in
from phonate.errors import InvalidRequest

MIN_SECONDS = 1.0

_BLOCK_MS = 20.0
_AUDIBLE_RMS = 0.003
"""-50 dBFS: below it a 20 ms block is taken for silence."""

_MIN_AUDIBLE_SECONDS = 0.5
_MAX_CLIPPED = 0.01
"""Speech normalised to full scale has 0.0..0.1 % of its samples there; overdriven, 2 % and more."""

_TAIL_MS = 500.0
_TAIL_FADE_MS = 10.0


def load_reference(source: bytes | BinaryIO, *, param: str = "audio_sample") -> Decoded:
    """What `decode` says, then `check_reference`."""
    decoded = decode(source, param=param)
    check_reference(decoded, param=param)
    return decoded


def check_reference(decoded: Decoded, *, param: str = "audio_sample") -> None:
    """Raises InvalidRequest, with the figure, for a recording too short, silent or overdriven."""
    if decoded.seconds < MIN_SECONDS:
        raise InvalidRequest(
            f"{param} is {decoded.seconds:.2f} s long; a voice needs {MIN_SECONDS:g} to "
            f"{MAX_SECONDS:g} s of speech, best 5 to 15.",
            param=param,
        )
    audible_s = _audible_blocks(decoded.samples, decoded.sample_rate).sum() * _BLOCK_MS / 1000
    if audible_s < _MIN_AUDIBLE_SECONDS:
        raise InvalidRequest(
            f"{param} is silent: {audible_s:.1f} s of {decoded.seconds:.1f} s are louder than "
            f"{20 * np.log10(_AUDIBLE_RMS):.0f} dBFS. Record closer to the microphone.",
            param=param,
        )
    if decoded.clipped > _MAX_CLIPPED:
        raise InvalidRequest(
            f"{param} is clipped: {decoded.clipped:.1%} of it is at full scale, at most "
            f"{_MAX_CLIPPED:.0%} is accepted. Record it again at a lower level.",
            param=param,
        )


def with_silent_end(x: Floats, sample_rate: int) -> Floats:
    """Add 500 ms of silence to a reference [n] that ends in the middle of sound.

    In-context cloning goes on where the reference stops: without a pause there, its last syllable
    runs into the first word of what is to be said. Quiet ends are left as they are.
    """
    audible = _audible_blocks(x, sample_rate)
    if not len(audible) or not audible[-3:].any():
        return x
    n = min(len(x), samples_in(_TAIL_FADE_MS, sample_rate))
    out = np.concatenate((x, np.zeros(samples_in(_TAIL_MS, sample_rate), np.float32)))
    out[len(x) - n : len(x)] *= np.linspace(1, 0, n, endpoint=False, dtype=np.float32)
    return out


def _audible_blocks(x: Floats, sample_rate: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each whole 20 ms block, counted from the end, is audible: bool [n // block]."""
    block = samples_in(_BLOCK_MS, sample_rate)
    n = len(x) // block
    blocks = x[len(x) - n * block :].reshape(n, block)
    audible: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
        np.sqrt(np.square(blocks).mean(axis=1)) >= _AUDIBLE_RMS
    )
    return audible
