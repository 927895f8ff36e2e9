"""`reference.wav`: mono, 24 kHz, int16, one plain RIFF header.

What is encoded is always what was read back from these bytes, so a voice sounds the same whether
its latents were made at registration or a year later.
"""

from __future__ import annotations

import io
import wave

import numpy as np

from phonate.engine.base import Samples
from phonate.voices.manifest import Damaged

SAMPLE_RATE = 24_000
FULL_SCALE = 32_768


def pack_wav(samples: Samples) -> bytes:
    """float32 [n], nominally -1..1 -> the file's bytes: 44 + 2 * n."""
    scaled = np.rint(np.asarray(samples, np.float64) * FULL_SCALE)
    pcm = np.clip(scaled, -FULL_SCALE, FULL_SCALE - 1).astype("<i2")
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(SAMPLE_RATE)
        writer.writeframes(pcm.tobytes())
    return buffer.getvalue()


def unpack_wav(data: bytes) -> Samples:
    """The file's bytes -> float32 [n]. Raises Damaged for any other kind of WAV."""
    try:
        with wave.open(io.BytesIO(data), "rb") as reader:
            shape = reader.getnchannels(), reader.getsampwidth(), reader.getframerate()
            if shape != (1, 2, SAMPLE_RATE):
                raise Damaged(f"reference.wav is not mono, 16 bit, {SAMPLE_RATE} Hz")
            pcm = np.frombuffer(reader.readframes(reader.getnframes()), "<i2")
    except (wave.Error, EOFError, ValueError) as error:
        raise Damaged("reference.wav is no WAV file") from error
    if not len(pcm):
        raise Damaged("reference.wav has no audio")
    samples: Samples = pcm.astype(np.float32) / np.float32(FULL_SCALE)
    return samples
