"""Random numbers for one tensor, the same on every machine.

A value is `mean + (r - 32767.5) * step` in float32, r a 16-bit piece of PCG64's raw output: two
roundings, no library function, so the bits do not depend on numpy's version. The spread (standard
deviation) is chosen so that every layer matters and nothing runs away: 1/sqrt(products) for
matrices, times a gain from the table below.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import numpy.typing as npt

from phonate.engine.models.talker_tensors import Role, TensorSpec

F32 = npt.NDArray[np.float32]

PIECE_ELEMENTS = 1 << 21

_SPREADS = {
    Role.LINEAR: (0.0, 1.0),
    Role.EMBEDDING: (0.0, 0.25),
    Role.NORM: (1.0, 0.1),
    Role.BIAS: (0.0, 0.05),
    Role.SCALE: (0.3, 0.05),
    Role.SNAKE: (0.0, 0.2),
    Role.CODEBOOK: (0.0, 0.5),
    Role.USAGE: (4.5, 2.0),
    Role.FLAG: (1.0, 0.0),
}
"""Role -> (mean, standard deviation); for LINEAR the latter is over the square root of fan_in."""

_GAINS = (
    ("talker.model.text_embedding.*", 4.0),
    ("*.o_proj.weight", 0.7),
    ("*.down_proj.weight", 0.7),
    # Logits of spread 3: sampling at temperature 0.9 then has a few likely candidates, not 50.
    ("talker.codec_head.*", 3.0),
    ("talker.code_predictor.lm_head.*", 3.0),
    ("decoder.decoder.?.block.?.conv2.conv.weight", 0.3),
    # Brings random codes to an audio rms of 0.1.
    ("decoder.decoder.6.conv.weight", 0.04),
    ("decoder.decoder.6.conv.bias", 0.0),
)
"""First match of the official name; the spread is multiplied by it."""

_EOS_ROW = 2150
UNUSED_CODE = 7
"""The codebook row that was never used in training: its count and its sum are 0."""


def pieces(spec: TensorSpec, seed: int, dtype: str, eos_gain: float) -> Iterator[npt.NDArray[Any]]:
    """The tensor, a few megabytes at a time, as float32 or as bfloat16 bits (uint16)."""
    stream = _Stream(spec, seed)
    counts = None
    if spec.role is Role.CODEBOOK and spec.usage is not None:
        usage = TensorSpec(spec.usage, spec.shape[:1], None, Role.USAGE)
        counts = np.concatenate(list(pieces(usage, seed, "F32", eos_gain)))
    row = math.prod(spec.shape[1:])
    step = max(1, PIECE_ELEMENTS // row)
    for first in range(0, spec.shape[0], step):
        count = min(step, spec.shape[0] - first)
        rows = stream.take(count * row).reshape(count, row)
        if counts is not None:
            rows *= counts[first : first + count, None]
        elif spec.role is Role.USAGE and first <= UNUSED_CODE < first + count:
            rows[UNUSED_CODE - first] = 0.0
        elif spec.name == "talker.codec_head.weight" and first <= _EOS_ROW < first + count:
            rows[_EOS_ROW - first] *= np.float32(eos_gain)
        values = rows.ravel()
        yield f32_to_bf16(values) if dtype == "BF16" else values


class _Stream:
    """Float32 values of one tensor in order; how they are cut into calls does not matter."""

    def __init__(self, spec: TensorSpec, seed: int) -> None:
        mean, spread = _SPREADS[spec.role]
        if spec.role is Role.LINEAR:
            spread /= math.sqrt(spec.fan_in)
        spread *= next((gain for pattern, gain in _GAINS if fnmatchcase(spec.name, pattern)), 1.0)
        # 65536 equally likely values one step apart: standard deviation 65536 / sqrt(12) steps.
        self._step = np.float32(spread * math.sqrt(12) / 65536)
        self._mean = np.float32(mean)
        self._bits = np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(spec.name.encode())]))
        self._left = np.empty(0, np.uint16)

    def take(self, n: int) -> F32:
        short = n - len(self._left)
        if short > 0:
            raw = self._bits.random_raw(-(-short // 4))
            words = np.frombuffer(np.asarray(raw, "<u8").tobytes(), "<u2")
            self._left = np.concatenate([self._left, words])
        taken, self._left = self._left[:n], self._left[n:]
        values = taken.astype(np.float32)
        values -= np.float32(32767.5)
        values *= self._step
        values += self._mean
        return values


def f32_to_bf16(values: F32) -> npt.NDArray[np.uint16]:
    """Round to nearest, ties to even. Finite values only."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
