"""Float audio -> 16-bit PCM, and back.

    pcm = round(clip(x, -1, 1) * 32767), NaN -> 0, +-Inf -> +-1

Symmetric on purpose: +1 and -1 have the same size, so a clipped tone gets no offset.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]
"""Mono audio [n], nominally within -1..1."""

Pcm: TypeAlias = npt.NDArray[np.int16]
"""Mono audio [n], what is sent and encoded."""

FULL_SCALE = 32767

NO_FLOATS: Floats = np.zeros(0, np.float32)
NO_PCM: Pcm = np.zeros(0, np.int16)


def finite(x: npt.NDArray[np.floating]) -> Floats:
    """A copy with NaN -> 0 and +-Inf -> +-1. Values beyond 1 stay: shaping precedes clipping."""
    with np.errstate(over="ignore"):  # A float64 too large for float32 becomes Inf: as good.
        narrow = np.array(x, np.float32)
    # Looking costs a sixth of replacing, and almost never is there anything to replace.
    if not np.isfinite(narrow).all():
        np.nan_to_num(narrow, copy=False, nan=0.0, posinf=1.0, neginf=-1.0)
    return narrow


def to_pcm(x: npt.NDArray[np.floating]) -> Pcm:
    """Float [n] -> int16 [n] by the rule above. The input is left as it is."""
    clean = finite(x)
    np.clip(clean, -1.0, 1.0, out=clean)
    clean *= FULL_SCALE
    return np.rint(clean, out=clean).astype(np.int16)


def to_floats(pcm: Pcm) -> Floats:
    """int16 [n] -> float32 [n] within -1..1 (-32768 becomes -1). `to_pcm` undoes it exactly."""
    x: Floats = pcm.astype(np.float32)
    x /= FULL_SCALE
    return np.maximum(x, -1.0, out=x)


def samples_in(milliseconds: float, sample_rate: int) -> int:
    """The number of samples nearest to a time."""
    return round(milliseconds * sample_rate / 1000)


def to_bytes(pcm: Pcm) -> bytes:
    """int16 [n] -> 2n bytes, little-endian whatever the machine is."""
    return pcm.astype("<i2", copy=False).tobytes()
