"""Uploaded audio -> mono float32, with what is worth knowing about it.

FFmpeg reads nearly anything, which is the danger: among its formats are playlists and scripts that
open other files or addresses. So the containers are an allow-list, no protocol may be opened, and
what is decoded is bounded in bytes, channels and seconds before it is held in memory.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import av
import numpy as np

from phonate.audio.pcm import Floats, finite
from phonate.audio.resample import resample
from phonate.errors import InvalidRequest, TooLarge, UnsupportedMedia

MAX_BYTES = 10 * 1024 * 1024
MAX_SECONDS = 30.0
TARGET_RATE = 24000

ACCEPTED = "wav, mp3, ogg/opus, flac, aac, m4a/mp4 or webm"

_CONTAINERS = ("wav", "mp3", "ogg", "flac", "aac", "mov", "mp4", "m4a", "matroska", "webm")
"""FFmpeg's names. One demuxer reads mov, mp4 and m4a, one matroska and webm."""

_OPTIONS = {
    "format_whitelist": ",".join(_CONTAINERS),
    "protocol_whitelist": "none",
    "max_streams": "16",
}

_MAX_CHANNELS = 8
_MAX_RATE = 192_000
_PADDING_S = 0.15
"""An encoder's delay and padding: this much more than the limit is still the limit."""

_FULL_SCALE = 0.99
"""|x| from which a sample counts as clipped."""

_CUT_SHORT = 0.9
"""A file that holds less than this part of the duration it claims, and lacks half a second."""

_MAX_BAD_PACKETS = 0.1

_NO_PROMISE = 0x7FFF0000

_SCALES = {"u1": 128.0, "i2": 32768.0, "i4": 2147483648.0, "f4": 1.0, "f8": 1.0}


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """Mono audio and where it came from."""

    samples: Floats
    """[n] at `sample_rate`."""
    sample_rate: int
    container: str
    codec: str
    original_rate: int
    channels: int
    peak: float
    """max |x| before mixing and resampling."""
    clipped: float
    """Part of the moments, 0..1, at which a channel was at full scale."""

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.sample_rate


def decode(
    source: bytes | BinaryIO,
    *,
    param: str = "audio_sample",
    max_bytes: int = MAX_BYTES,
    max_seconds: float = MAX_SECONDS,
    sample_rate: int = TARGET_RATE,
) -> Decoded:
    """Bytes, or a file that can seek, of any accepted container; the name or suffix plays no part.

    Raises TooLarge over `max_bytes`; UnsupportedMedia for what is not audio we read;
    InvalidRequest when empty, longer than `max_seconds`, cut short or damaged. All name `param`.
    """
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    n_bytes = _check_size(file, param, max_bytes)
    missing = _missing_from_riff(file, n_bytes)
    try:
        with av.open(
            file, "r", options=_OPTIONS, metadata_errors="replace", buffer_size=65536
        ) as container:
            return _decode(container, param, max_seconds, sample_rate, missing)
    except av.FFmpegError as failure:
        raise UnsupportedMedia(
            f"{param} is not audio that can be read ({failure.strerror}). Send {ACCEPTED}.",
            param=param,
        ) from failure


def _check_size(file: BinaryIO, param: str, max_bytes: int) -> int:
    n = file.seek(0, io.SEEK_END)
    file.seek(0)
    if n == 0:
        raise InvalidRequest(f"{param} is empty (0 bytes). Send {ACCEPTED}.", param=param)
    if n > max_bytes:
        raise TooLarge(
            f"{param} has {n:,} bytes; at most {max_bytes:,} are accepted. "
            "Send a shorter recording, or a compressed one.",
            param=param,
        )
    return n


def _missing_from_riff(file: BinaryIO, n_bytes: int) -> float:
    """Part of a WAV file, 0..1, that its header promises and that is not there. FFmpeg goes by the
    size of the file instead. Streamed files say 0 or a number near 2 or 4 GiB: no promise."""
    head = file.read(12)
    file.seek(0)
    promised = int.from_bytes(head[4:8], "little") + 8
    if head[:4] != b"RIFF" or head[8:] != b"WAVE" or not n_bytes < promised < _NO_PROMISE:
        return 0.0
    return 1 - n_bytes / promised


def _decode(
    container: Any, param: str, max_seconds: float, sample_rate: int, missing: float
) -> Decoded:
    if not container.streams.audio:
        raise UnsupportedMedia(
            f"{param} has no audio in it (a {container.format.name} file). Send {ACCEPTED}.",
            param=param,
        )
    stream = container.streams.audio[0]
    mixer = _Mixer(param, max_seconds)
    for channels, rate in _frames(container, stream, param):
        mixer.add(channels, rate)
    claimed_s = (container.duration or 0) / av.time_base
    mixer.check_length(claimed_s / (1 - missing))
    return Decoded(
        samples=resample(mixer.mono(), mixer.rate, sample_rate),
        sample_rate=sample_rate,
        container=container.format.name,
        codec=stream.codec_context.name,
        original_rate=mixer.rate,
        channels=mixer.channels,
        peak=mixer.peak,
        clipped=mixer.n_clipped / mixer.n,
    )


def _frames(container: Any, stream: Any, param: str) -> Iterator[tuple[Floats, int]]:
    """(float32 [channels, n], Hz) of each frame. A few damaged packets are passed over, as players
    do."""
    n_packets = n_bad = 0
    for packet in container.demux(stream):
        n_packets += 1
        try:
            frames = packet.decode()
        except av.InvalidDataError:
            n_bad += 1
            continue
        for frame in frames:
            if frame.samples:
                yield _floats(frame, param), frame.sample_rate
    if n_bad > 2 + _MAX_BAD_PACKETS * n_packets:
        raise InvalidRequest(
            f"{param} is damaged: {n_bad} of {n_packets} packets cannot be decoded. "
            "Export the recording again.",
            param=param,
        )


def _floats(frame: Any, param: str) -> Floats:
    channels = len(frame.layout.channels)
    if not 1 <= channels <= _MAX_CHANNELS or not 0 < frame.sample_rate <= _MAX_RATE:
        raise InvalidRequest(
            f"{param} has {channels} channels at {frame.sample_rate} Hz; at most {_MAX_CHANNELS} "
            f"channels at {_MAX_RATE} Hz are accepted.",
            param=param,
        )
    x = frame.to_ndarray()
    planes = x if frame.format.is_planar else x.reshape(-1, channels).T
    floats = finite(planes)
    if x.dtype.kind == "u":
        floats -= 128.0
    floats /= _SCALES[x.dtype.str[1:]]
    # Float formats may say anything; beyond full scale it is clipped, and counted as that.
    return np.clip(floats, -1.0, 1.0, out=floats)


class _Mixer:
    """Gathers frames as one channel and measures what mixing would hide."""

    def __init__(self, param: str, max_seconds: float) -> None:
        self._param = param
        self._max_seconds = max_seconds
        self._mixed: list[Floats] = []
        self._first: list[Floats] = []
        self.rate = self.channels = self.n = self.n_clipped = 0
        self.peak = 0.0

    def add(self, x: Floats, rate: int) -> None:
        """x: [channels, n]"""
        if not self.n:
            self.channels, self.rate = len(x), rate
        if rate != self.rate:
            raise InvalidRequest(
                f"{self._param} changes its sample rate from {self.rate} to {rate} Hz on the way. "
                "Export it at one rate.",
                param=self._param,
            )
        loudest = np.abs(x).max(axis=0)
        self.peak = max(self.peak, float(loudest.max()))
        self.n_clipped += int(np.count_nonzero(loudest >= _FULL_SCALE))
        self.n += x.shape[1]
        if self.n > (self._max_seconds + _PADDING_S) * self.rate:
            raise InvalidRequest(
                f"{self._param} is longer than {self._max_seconds:g} s. Cut it to the "
                f"{self._max_seconds:g} s that show the voice best.",
                param=self._param,
            )
        self._mixed.append(x.mean(axis=0))
        self._first.append(x[0])

    def check_length(self, claimed_s: float) -> None:
        if not self.n:
            raise InvalidRequest(
                f"{self._param} has an audio track without any sound in it.", param=self._param
            )
        seconds = self.n / self.rate
        if seconds < claimed_s * _CUT_SHORT and claimed_s - seconds > 0.5:
            raise InvalidRequest(
                f"{self._param} is cut short: it says {claimed_s:.1f} s and holds {seconds:.1f} s. "
                "Upload the whole file again.",
                param=self._param,
            )

    def mono(self) -> Floats:
        """The mean of the channels; the first one alone where they cancel each other out (a
        microphone wired as a balanced pair)."""
        mixed, first = np.concatenate(self._mixed), np.concatenate(self._first)
        cancelled = float(np.square(mixed).sum()) < 0.05 * float(np.square(first).sum())
        return first if cancelled else mixed
