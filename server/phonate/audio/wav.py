"""The 44-byte RIFF header of 16-bit mono PCM: `fmt `, then `data`, then nothing."""

from __future__ import annotations

import struct

UNKNOWN_SIZE = 0xFFFFFFFF
"""What both size fields say while the length is unknown. Never 0: players take 0 for "empty"."""

HEADER_BYTES = 44
_RIFF_WITHOUT_ITS_OWN_8 = HEADER_BYTES - 8
_PCM, _CHANNELS, _BITS = 1, 1, 16


def header(sample_rate: int, data_bytes: int | None = None) -> bytes:
    """44 bytes. `data_bytes` None means streamed. Raises ValueError for what RIFF cannot hold."""
    if data_bytes is None:
        riff_size = data_size = UNKNOWN_SIZE
    else:
        riff_size, data_size = _RIFF_WITHOUT_ITS_OWN_8 + data_bytes, data_bytes
        if riff_size >= UNKNOWN_SIZE:
            raise ValueError(f"A WAV file holds less than 4 GiB, not {data_bytes} bytes.")
    block = _CHANNELS * _BITS // 8
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        riff_size,
        b"WAVE",
        b"fmt ",
        16,
        _PCM,
        _CHANNELS,
        sample_rate,
        sample_rate * block,
        block,
        _BITS,
        b"data",
        data_size,
    )
