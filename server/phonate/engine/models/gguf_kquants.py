"""Q4_K, Q5_K and Q6_K, which the `gguf` package reads but does not write.

A super-block is 256 numbers of one row. All arithmetic is on [blocks, sub-blocks, elements].

    Q6_K   16 sub-blocks of 16:  x = d * scale * (q - 32)            scale int8, q 6 bits
    Q4_K    8 sub-blocks of 32:  x = d * scale * q - dmin * minimum  both 6 bits, q 4 bits
    Q5_K    as Q4_K with q of 5 bits

The scales are fitted by least squares around a first rounding; llama.cpp searches longer and gains
a few percent of error. Its readers read these.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
U8 = npt.NDArray[np.uint8]

SUPER_BLOCK = 256


def _divide(a: F32, b: F32) -> F32:
    """a / b, and 0 where b is 0."""
    return np.divide(
        a, b, out=np.zeros(np.broadcast_shapes(a.shape, b.shape), np.float32), where=b != 0
    )


def _half(values: F32) -> tuple[F32, U8]:
    """Round to float16: (what a reader will see, the two bytes of each)."""
    half = values.astype("<f2")
    return half.astype(np.float32), half.reshape(-1, 1).view(np.uint8)


def encode_q6_k(rows: F32) -> U8:
    """float32 [rows, 256 n] -> bytes [rows, 210 n]."""
    x = rows.reshape(-1, 16, 16)
    scale = np.abs(x).max(-1) / np.float32(31)
    for _ in range(2):
        q = np.clip(np.rint(_divide(x, scale[..., None])), -32, 31)
        scale = _divide((x * q).sum(-1), (q * q).sum(-1))
    d, d_bytes = _half(np.abs(scale).max(-1) / np.float32(127))
    scales = np.clip(np.rint(_divide(scale, d[:, None])), -127, 127)
    q = np.clip(np.rint(_divide(x, (d[:, None] * scales)[..., None])), -32, 31)
    codes = (q + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    # Per half: 64 bytes of low nibbles, 32 bytes of two high bits for each of four runs of 32.
    low, high = codes & 15, codes >> 4
    nibbles = low[:, :, :2] | low[:, :, 2:] << 4
    bits = high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6
    return _join(
        rows,
        nibbles.reshape(-1, 128),
        bits.reshape(-1, 64),
        scales.astype(np.int8).view(np.uint8),
        d_bytes,
    )


def encode_q4_k(rows: F32) -> U8:
    """float32 [rows, 256 n] -> bytes [rows, 144 n]."""
    codes, head = _with_minimum(rows, 15)
    return _join(rows, *head, _nibbles(codes))


def encode_q5_k(rows: F32) -> U8:
    """float32 [rows, 256 n] -> bytes [rows, 176 n]."""
    codes, head = _with_minimum(rows, 31)
    # Bit s of byte i is the fifth bit of element i of sub-block s.
    fifth = (codes >> 4) << np.arange(8, dtype=np.uint8)[None, :, None]
    return _join(
        rows, *head, np.bitwise_or.reduce(fifth, axis=1), _nibbles((codes & 15).astype(np.uint8))
    )


def _with_minimum(rows: F32, top: int) -> tuple[U8, tuple[U8, U8, U8]]:
    """(codes 0..top [blocks, 8, 32], (d, dmin, packed scales))."""
    x = rows.reshape(-1, 8, 32)
    low = np.minimum(x.min(-1), 0)
    scale = (x.max(-1) - low) / np.float32(top)
    for _ in range(2):
        q = np.clip(np.rint(_divide(x - low[..., None], scale[..., None])), 0, top)
        scale, low = _fit_line(x, q.astype(np.float32), scale, low)
    d, d_bytes = _half(scale.max(-1) / np.float32(63))
    dmin, dmin_bytes = _half((-low).max(-1) / np.float32(63))
    scales = np.clip(np.rint(_divide(scale, d[:, None])), 0, 63)
    minima = np.clip(np.rint(_divide(-low, dmin[:, None])), 0, 63)
    shifted = x + (dmin[:, None] * minima)[..., None]
    q = np.clip(np.rint(_divide(shifted, (d[:, None] * scales)[..., None])), 0, top)
    packed = _pack_6_bits(scales.astype(np.uint8), minima.astype(np.uint8))
    return q.astype(np.uint8), (d_bytes, dmin_bytes, packed)


def _fit_line(x: F32, q: F32, scale: F32, low: F32) -> tuple[F32, F32]:
    """Least squares x ~ scale * q + low with scale > 0 and low <= 0; else what was there."""
    n = np.float32(x.shape[-1])
    sum_q, sum_x = q.sum(-1), x.sum(-1)
    sum_qq, sum_qx = (q * q).sum(-1), (q * x).sum(-1)
    determinant = n * sum_qq - sum_q * sum_q
    new_scale = _divide(n * sum_qx - sum_q * sum_x, determinant)
    new_low = (sum_x - new_scale * sum_q) / n
    pinned = new_low > 0
    new_scale = np.where(pinned, _divide(sum_qx, sum_qq), new_scale)
    new_low = np.where(pinned, np.float32(0), new_low)
    good = new_scale > 0
    return np.where(good, new_scale, scale), np.where(good, new_low, low)


def _pack_6_bits(scales: U8, minima: U8) -> U8:
    """Eight 6-bit scales and eight minima in 12 bytes: the first four of each whole, with the top
    two bits of the last four above them; the low nibbles of the last four together."""
    first = scales[:, :4] | (scales[:, 4:] >> 4) << 6
    second = minima[:, :4] | (minima[:, 4:] >> 4) << 6
    third = (scales[:, 4:] & 15) | (minima[:, 4:] & 15) << 4
    return np.concatenate([first, second, third], axis=1)


def _nibbles(codes: U8) -> U8:
    """[blocks, 8, 32] -> [blocks, 128]: each even sub-block in the low half of the odd one."""
    return (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8).reshape(-1, 128)


def _join(rows: F32, *parts: npt.NDArray[Any]) -> U8:
    blocks = np.concatenate(parts, axis=1)
    joined: U8 = blocks.reshape(rows.shape[0], -1)
    return joined
