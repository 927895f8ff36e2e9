"""What the tests of the sound share: signals, cuttings, decoders that are not ours."""

from __future__ import annotations

import io

import av
import numpy as np
import soundfile
from hypothesis import strategies as st

SR = 24000


def tone(n, sample_rate=SR, hz=440.0, amplitude=12000):
    """int16 [n]"""
    return np.rint(amplitude * np.sin(2 * np.pi * hz / sample_rate * np.arange(n))).astype(np.int16)


def voiced(n, sample_rate=SR, seed=0):
    """int16 [n]: a buzz with noise that swells and ebbs, so that codecs have something to do."""
    rng = np.random.default_rng(seed)
    t = np.arange(n) / sample_rate
    pitch = 2 * np.pi * (120 * t + 5 * np.sin(2 * np.pi * 0.7 * t))
    buzz = sum(np.sin(k * pitch) / k for k in range(1, 12))
    loudness = 0.55 + 0.45 * np.sin(2 * np.pi * 3.1 * t)
    return (
        np.rint(9000 * loudness * buzz + rng.normal(0, 150, n)).clip(-32767, 32767).astype(np.int16)
    )


def run(stage, x, cuts=()):
    """Everything that comes out when x is fed in pieces that end at `cuts`."""
    out = [stage.feed(piece) for piece in np.split(x, sorted(min(cut, len(x)) for cut in cuts))]
    out.append(stage.finish())
    return b"".join(out) if isinstance(out[0], bytes) else np.concatenate(out)


def cuttings(longest):
    """Positions to cut at; equal ones make empty pieces, neighbours pieces of one sample."""
    near = st.integers(0, longest).flatmap(
        lambda at: st.sampled_from([[at], [at, at], [at, at + 1]])
    )
    return st.lists(near, max_size=12).map(
        lambda groups: [cut for group in groups for cut in group]
    )


def by_libsndfile(data):
    with soundfile.SoundFile(io.BytesIO(data)) as reader:
        blocks = [np.zeros(0)]
        while len(block := reader.read(65536)):  # A streamed flac does not say how much there is.
            blocks.append(block)
        return np.concatenate(blocks), reader.samplerate


def decode(data, *, ffmpeg=False):
    """(float [n], Hz) by libsndfile where it can read the format, else by FFmpeg."""
    if not ffmpeg:
        try:
            return by_libsndfile(data)
        except soundfile.LibsndfileError:
            pass
    # A few frames of ADTS are too little for FFmpeg to guess the format by.
    name = "aac" if data[:2] == b"\xff\xf1" else None
    with av.open(io.BytesIO(data), format=name) as container:
        stream = container.streams.audio[0]
        frames = [frame.to_ndarray().reshape(-1) for frame in container.decode(stream)]
        x = np.concatenate(frames) if frames else np.zeros(0)
        scale = -float(np.iinfo(x.dtype).min) if x.dtype.kind == "i" else 1
        return x.astype(np.float64) / scale, stream.rate


def level(x):
    """Root mean square."""
    return float(np.sqrt(np.mean(np.square(np.asarray(x, np.float64))))) if len(x) else 0.0
