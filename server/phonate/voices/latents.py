"""`.spk` and `.rvq`: what a voice is to a Qwen3-TTS talker, byte for byte as qwentts.cpp has it.

`.spk`  the speaker embedding: float32 little-endian [dim], nothing else.
`.rvq`  the reference's codec frames: codes [16, T], row-major (codebook 0 of all frames first),
        11 bits each, packed LSB first, no header. One frame is 16 * 11 bits = 22 bytes, so the
        length is 22 * T exactly and no bit is left over.

>>> codes = np.zeros((1, 16), np.int32); codes[0, 0] = 0b101_00000001
>>> pack_rvq(codes)[:2].hex()
'0105'
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from phonate.errors import InvalidRequest

N_CODEBOOKS = 16
CODE_BITS = 11
N_CODES = 1 << CODE_BITS
BYTES_PER_FRAME = N_CODEBOOKS * CODE_BITS // 8
FRAMES_PER_SECOND = 12.5
MAX_FRAMES = 400
"""32 s: the longest reference (30 s), its encoder's padding and the pause that is put behind it."""
MAX_EMBEDDING_DIM = 8192
"""No talker is wider than 2048; the bound only keeps nonsense out."""

Embedding = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int32]


def pack_spk(embedding: npt.ArrayLike) -> bytes:
    """float [dim] -> 4 * dim bytes."""
    return check_embedding(embedding, param="speaker_embedding").astype("<f4").tobytes()


def unpack_spk(data: bytes, *, dim: int | None = None, param: str = "spk_b64") -> Embedding:
    """4 * dim bytes -> read-only float32 [dim]. `dim`: the model's, when one is known."""
    if len(data) % 4 or not data:
        raise InvalidRequest(
            f"{param} must be float32 numbers, 4 bytes each; it has {len(data)} bytes.", param=param
        )
    return check_embedding(np.frombuffer(data, "<f4"), dim=dim, param=param)


def pack_rvq(codes: npt.ArrayLike) -> bytes:
    """int [T, 16] -> 22 * T bytes."""
    frames = check_codes(codes, param="ref_codes")
    flat = np.ascontiguousarray(frames.T).reshape(-1)  # [16 * T], codebook 0 first
    bits = (flat[:, None] >> np.arange(CODE_BITS)) & 1  # [16 * T, 11], lowest bit first
    return np.packbits(bits.astype(np.uint8).reshape(-1), bitorder="little").tobytes()


def unpack_rvq(data: bytes, *, param: str = "rvq_b64") -> Codes:
    """22 * T bytes -> read-only int32 [T, 16]. 11 bits hold 0..2047, so every value is legal."""
    n_frames, rest = divmod(len(data), BYTES_PER_FRAME)
    if rest or not n_frames:
        raise InvalidRequest(
            f"{param} must hold whole frames of {N_CODEBOOKS} codes, {BYTES_PER_FRAME} bytes each; "
            f"it has {len(data)} bytes.",
            param=param,
        )
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").reshape(-1, CODE_BITS)
    flat = bits.astype(np.int32) @ (1 << np.arange(CODE_BITS, dtype=np.int32))
    return check_codes(flat.reshape(N_CODEBOOKS, n_frames).T, param=param)


def check_embedding(
    values: npt.ArrayLike, *, dim: int | None = None, param: str = "speaker_embedding"
) -> Embedding:
    """A read-only float32 copy [dim]; InvalidRequest if it is no finite vector or all zero."""
    try:
        vector = np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        vector = np.zeros((0, 0))
    if vector.ndim != 1 or not 1 <= len(vector) <= MAX_EMBEDDING_DIM:
        raise InvalidRequest(
            f"{param} must be a flat list of 1 to {MAX_EMBEDDING_DIM} numbers.", param=param
        )
    if dim and len(vector) != dim:
        raise InvalidRequest(
            f"{param} has {len(vector)} numbers; this model's speakers have {dim}. "
            "An embedding fits only the model size it was made with.",
            param=param,
        )
    with np.errstate(over="ignore"):
        result = vector.astype(np.float32)
    if not np.isfinite(result).all() or not result.any():
        raise InvalidRequest(
            f"{param} must hold finite float32 numbers, not NaN, infinity or zeros only.",
            param=param,
        )
    result.setflags(write=False)
    return result


def check_codes(values: npt.ArrayLike, *, param: str = "rvq_b64") -> Codes:
    """A read-only int32 copy [T, 16]; InvalidRequest for another shape or values off 0..2047."""
    codes = np.array(values)
    if codes.ndim != 2 or codes.shape[1] != N_CODEBOOKS or codes.dtype.kind not in "iu":
        raise InvalidRequest(
            f"{param} must be whole numbers of shape [T, {N_CODEBOOKS}].", param=param
        )
    if not 1 <= len(codes) <= MAX_FRAMES:
        raise InvalidRequest(
            f"{param} has {len(codes)} frames; allowed are 1 to {MAX_FRAMES} "
            f"({MAX_FRAMES / FRAMES_PER_SECOND:g} s).",
            param=param,
        )
    if codes.min() < 0 or codes.max() >= N_CODES:
        raise InvalidRequest(f"{param} must hold codes from 0 to {N_CODES - 1}.", param=param)
    result = np.array(codes, np.int32, order="C")
    result.setflags(write=False)
    return result
