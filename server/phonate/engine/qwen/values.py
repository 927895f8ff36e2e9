"""Numbers and arrays that may be handed to a native library: each is checked by one function here.

All raise InvalidRequest; arrays come out as contiguous copies in the ABI's layout and type.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from phonate.engine.qwen.model import CODE_LIMIT
from phonate.errors import InvalidRequest

Number: TypeAlias = "int | float | bool"

MAX_REFERENCE_SECONDS = 120
MAX_EMBEDDING = 1e4
"""Released x-vectors stay below 100; beyond this, float16 caches overflow to infinity."""
MAX_AMPLITUDE = 64.0
"""Of reference audio: clipped or not, nothing real is louder than 36 dB over full scale."""


class Range(NamedTuple):
    low: float
    high: float
    what: str
    whole: bool = False


def check_number(value: Number, name: str, limits: Range) -> Number:
    """A finite number in the range, not a boolean. Raises InvalidRequest."""
    kinds = (int,) if limits.whole else (int, float)
    if (
        isinstance(value, bool)
        or not isinstance(value, kinds)
        or not limits.low <= value <= limits.high  # also false for NaN
    ):
        raise InvalidRequest(f"`{name}` must be {limits.what}, not {value!r}.", param=name)
    return value


def check_embedding(embedding: npt.ArrayLike, dim: int) -> npt.NDArray[np.float32]:
    """An x-vector of `dim` finite values. Raises InvalidRequest."""
    vector = _numeric(embedding, "speaker_embedding")
    if vector.shape != (dim,):
        raise InvalidRequest(
            f"A speaker embedding for this model has {dim} values, not the shape "
            f"{list(vector.shape)}. Was it made with another model?",
            param="speaker_embedding",
        )
    if not np.isfinite(vector).all() or np.abs(vector).max() > MAX_EMBEDDING:
        raise InvalidRequest(
            f"A speaker embedding holds finite values within +-{MAX_EMBEDDING:g} only.",
            param="speaker_embedding",
        )
    return np.array(vector, dtype=np.float32, order="C")


def check_codes(codes: npt.ArrayLike, n_codebooks: int) -> npt.NDArray[np.int32]:
    """[T, n_codebooks] as `Reference` has it -> a copy [n_codebooks, T] as the ABI wants it."""
    array = _numeric(codes, "reference codes")
    if array.ndim != 2 or array.shape[1] != n_codebooks or not array.shape[0]:
        raise InvalidRequest(
            f"Reference codes have the shape [frames, {n_codebooks}], not {list(array.shape)}.",
            param="ref_audio",
        )
    if array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= CODE_LIMIT:
        raise InvalidRequest(
            f"Reference codes are whole numbers from 0 to {CODE_LIMIT - 1}.", param="ref_audio"
        )
    return np.array(array.T, dtype=np.int32, order="C")


def check_reference_audio(
    audio: npt.ArrayLike, sample_rate: int, min_samples: int
) -> npt.NDArray[np.float32]:
    """Mono float audio, finite, long enough for the library. Raises InvalidRequest."""
    samples = _numeric(audio, "reference audio")
    longest = MAX_REFERENCE_SECONDS * sample_rate
    if samples.ndim != 1 or not min_samples <= samples.shape[0] <= longest:
        raise InvalidRequest(
            f"Reference audio is mono, {min_samples} to {longest} samples at {sample_rate} Hz, "
            f"not {list(samples.shape)}.",
            param="ref_audio",
        )
    wave = np.array(samples, dtype=np.float32, order="C")
    if not np.isfinite(wave).all() or np.abs(wave).max() > MAX_AMPLITUDE:
        raise InvalidRequest(
            "Reference audio must be finite, nominally within -1..1.", param="ref_audio"
        )
    return wave


def _numeric(value: npt.ArrayLike, what: str) -> npt.NDArray[np.generic]:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as exc:
        raise InvalidRequest(f"The {what} cannot be read as numbers ({exc}).") from exc
    if array.dtype.kind not in "fiu":
        raise InvalidRequest(f"The {what} must be numbers, not {array.dtype}.")
    return array
