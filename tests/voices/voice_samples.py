"""Small voices for the tests of the store."""

from __future__ import annotations

import numpy as np

from phonate.engine.base import Samples
from phonate.voices.draft import (
    Details,
    Draft,
    draft_of_embedding,
    draft_of_latents,
    draft_of_recording,
)


def hum(seconds: float = 1.0, hz: float = 150.0, seed: int = 0) -> Samples:
    """A tone with a little noise, 24 kHz."""
    time = np.arange(int(seconds * 24_000)) / 24_000
    noise = np.random.default_rng(seed).normal(0, 0.01, len(time))
    return (0.3 * np.sin(2 * np.pi * hz * time) + noise).astype(np.float32)


def recorded(name: str, *, seed: int = 0, seconds: float = 0.05, **words: str) -> Draft:
    return draft_of_recording(Details.clean(name=name, **words), hum(seconds, seed=seed))


def latents(name: str, *, seed: int = 0, dim: int = 8, frames: int = 3, **words: str) -> Draft:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2048, (frames, 16))
    return draft_of_latents(Details.clean(name=name, **words), rng.normal(size=dim), codes)


def embedded(name: str, *, dim: int = 8) -> Draft:
    return draft_of_embedding(Details.clean(name=name), np.arange(1.0, dim + 1))
