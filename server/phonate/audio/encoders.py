"""The six formats a client can ask for, each as feed(int16) -> bytes, finish() -> bytes.

PyAV's bare codecs, and framing of our own: a muxer wants to seek back, holds pages, adds ID3 tags.
Nothing here owns a file or a thread; an encoder that is dropped half way frees its codec with it.
Every encoder gives out its header together with its first audio, not before.

Lossy formats cannot carry every rate, or only with too long a start: a frame is a fixed number of
samples, so at 8 kHz it lasts 72..128 ms. `Format.wire_rate` is the rate that goes out; the encoder
resamples to it by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Protocol

import av
import numpy as np

from phonate.audio import wav
from phonate.audio.ogg import OPUS_RATE, OggOpus, page_checksum
from phonate.audio.pcm import NO_PCM, Pcm, to_bytes, to_floats
from phonate.audio.resample import Resampler


class Encoder(Protocol):
    def feed(self, pcm: Pcm) -> bytes:
        """int16 [n], n >= 0 -> what is ready. ValueError after finish()."""
        ...

    def finish(self) -> bytes:
        """The rest, once; a valid file even if nothing was fed. A second call gives b""."""
        ...


class _Stream:
    """What all encoders share: the header comes with the first audio, finish() comes once."""

    _begun = _done = False

    def feed(self, pcm: Pcm) -> bytes:
        if self._done:
            raise ValueError("This encoder has finished; make a new one.")
        return self._begin() + self._body(pcm) if len(pcm) else b""

    def finish(self) -> bytes:
        if self._done:
            return b""
        out = self._begin() + self._rest()
        self._done = True
        return out

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return self._header()

    def _header(self) -> bytes:
        return b""

    def _body(self, pcm: Pcm) -> bytes:
        raise NotImplementedError

    def _rest(self) -> bytes:
        return b""


class PcmEncoder(_Stream):
    """s16le, no header, always an even number of bytes."""

    def __init__(self, sample_rate: int) -> None:
        self._rate = sample_rate

    def _body(self, pcm: Pcm) -> bytes:
        return to_bytes(pcm)


class WavEncoder(PcmEncoder):
    """A streamed WAV: sizes unknown."""

    def _header(self) -> bytes:
        return wav.header(self._rate)


class _CodecEncoder(_Stream):
    """A libavcodec encoder fed frames of exactly its size, so that chunking cannot matter."""

    codec = ""
    layout = "s16"
    options: Mapping[str, str] = MappingProxyType({})
    can_be_empty = False
    """Where no samples make no file, one sample of silence stands in."""

    def __init__(self, sample_rate: int, bit_rate: int = 0) -> None:
        self._rate = sample_rate
        context: Any = av.CodecContext.create(self.codec, "w")
        context.sample_rate = sample_rate
        context.layout = "mono"
        context.format = self.layout
        if bit_rate:
            context.bit_rate = bit_rate
        context.options = dict(self.options)
        context.open()
        self._context = context
        self._frame: int = context.frame_size
        self._held = NO_PCM
        self._n = 0
        """Samples handed to the codec."""

    def _body(self, pcm: Pcm) -> bytes:
        self._held = np.concatenate((self._held, pcm))
        whole = len(self._held) // self._frame * self._frame
        packets = [
            packet
            for start in range(0, whole, self._frame)
            for packet in self._encode(self._held[start : start + self._frame])
        ]
        self._held = self._held[whole:]
        return b"".join(map(self._wrap, packets))

    def _rest(self) -> bytes:
        if not self._n and not len(self._held) and not self.can_be_empty:
            self._held = np.zeros(1, np.int16)
        packets = self._encode(self._held) if len(self._held) else []
        packets += self._context.encode(None)
        self._held = NO_PCM
        return self._close([bytes(packet) for packet in packets])

    def _encode(self, pcm: Pcm) -> list[Any]:
        samples: Any = to_floats(pcm) if self.layout == "fltp" else np.ascontiguousarray(pcm)
        frame = av.AudioFrame.from_ndarray(samples[np.newaxis], format=self.layout, layout="mono")
        frame.sample_rate = self._rate
        frame.time_base = Fraction(1, self._rate)
        frame.pts = self._n
        self._n += len(pcm)
        packets: list[Any] = self._context.encode(frame)
        return packets

    def _wrap(self, packet: Any) -> bytes:
        return bytes(packet)

    def _close(self, packets: list[bytes]) -> bytes:
        return b"".join(map(self._wrap, packets))


class Mp3Encoder(_CodecEncoder):
    """Bare frames at a constant rate: no ID3, no Info frame.

    Two bodies joined are then one longer stream, and the length of each follows from its size. The
    bit reservoir is off: every frame stands alone, so the first one may be left out. At 24 kHz and
    below it holds nothing but the encoder's delay (1105 samples, of which a frame is 576).
    """

    codec = "libmp3lame"
    layout = "s16p"
    options = MappingProxyType({"reservoir": "0"})
    _DELAY, _DECODER_DELAY = 1105, 529

    def __init__(self, sample_rate: int, bit_rate: int) -> None:
        super().__init__(sample_rate, bit_rate)
        self._to_drop = (self._DELAY - self._DECODER_DELAY) // self._frame

    def _wrap(self, packet: Any) -> bytes:
        if self._to_drop:
            self._to_drop -= 1
            return b""
        return bytes(packet)


class AacEncoder(_CodecEncoder):
    """AAC-LC, each frame behind a 7-byte ADTS header (ISO 13818-7, 6.2)."""

    codec = "aac"
    layout = "fltp"
    _RATES = (96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000)
    _SYNC_MPEG4_NO_CRC = 0xFFF1
    _PROFILE_LC, _MONO, _BUFFER_VBR, _HEADER_BYTES = 1, 1, 0x7FF, 7

    def _wrap(self, packet: Any) -> bytes:
        body = bytes(packet)
        bits = self._SYNC_MPEG4_NO_CRC
        for value, width in (
            (self._PROFILE_LC, 2),
            (self._RATES.index(self._rate), 4),
            (0, 1),
            (self._MONO, 3),
            (0, 4),
            (len(body) + self._HEADER_BYTES, 13),
            (self._BUFFER_VBR, 11),
            (0, 2),
        ):
            bits = bits << width | value
        return bits.to_bytes(self._HEADER_BYTES, "big") + body


class FlacEncoder(_CodecEncoder):
    """`fLaC`, STREAMINFO (length unknown while streaming), frames of 27 ms."""

    codec = "flac"
    can_be_empty = True
    # Levels 0..2 have blocks of 27 ms, higher ones of 105 ms: too late for the first sound.
    options = MappingProxyType({"compression_level": "2"})
    _LAST_BLOCK_STREAMINFO = 0x80

    def _header(self) -> bytes:
        return self.final_header()

    def final_header(self) -> bytes:
        """After finish(), libavcodec knows the length and the MD5; the size stays the same."""
        info = bytes(self._context.extradata)
        return b"fLaC" + bytes([self._LAST_BLOCK_STREAMINFO, 0, 0, len(info)]) + info


class OpusEncoder(_CodecEncoder):
    """Ogg Opus; the last page says how long it was, to the sample."""

    codec = "libopus"
    options = MappingProxyType({"application": "audio", "frame_duration": "20"})
    _ogg: OggOpus | None = None
    _granule = 0

    def _header(self) -> bytes:
        return b""  # Written with the first packet, which names the stream.

    def _open(self, first_packet: bytes) -> bytes:
        """Joined bodies make a chain, whose streams need different serials. The first packet's
        checksum is as good as a random number, and the same input gives the same bytes."""
        head = bytes(self._context.extradata)
        self._pre_skip = int.from_bytes(head[10:12], "little")
        self._ogg = OggOpus(page_checksum(first_packet), self._pre_skip, self._rate)
        return self._ogg.headers()

    def _wrap(self, packet: Any, *, last: bool = False) -> bytes:
        body = bytes(packet)
        headers = b"" if self._ogg else self._open(body)
        assert self._ogg is not None
        self._granule += self._frame * OPUS_RATE // self._rate
        end = self._pre_skip + self._n * OPUS_RATE // self._rate
        granule = min(self._granule, end) if last else self._granule
        return headers + self._ogg.page(body, granule, last=last)

    def _close(self, packets: list[bytes]) -> bytes:
        # The encoder's delay is less than a frame, so at least one packet is always left for here.
        *before, last = packets
        return b"".join(map(self._wrap, before)) + self._wrap(last, last=True)


class _Resampled:
    """An encoder behind a resampler, for the rates it cannot carry."""

    def __init__(self, resampler: Resampler, inner: Encoder) -> None:
        self._resampler, self._inner = resampler, inner

    def feed(self, pcm: Pcm) -> bytes:
        return self._inner.feed(self._resampler.feed(pcm))

    def finish(self) -> bytes:
        rest = self._resampler.finish()
        return (self._inner.feed(rest) if len(rest) else b"") + self._inner.finish()


@dataclass(frozen=True, slots=True)
class Format:
    """One row of FORMATS."""

    name: str
    content_type: str
    encoding: str
    """For X-Audio-Encoding."""
    make: Callable[[int], Encoder]
    """wire rate -> a streaming encoder."""
    rates: tuple[int, ...] | None = None
    """Hz it can carry; None is any."""
    instant: bool = False
    """Encoding costs less than handing it to another thread."""
    whole: Callable[[Pcm, int], bytes] | None = None
    """(pcm, wire rate) -> a file with its sizes filled in, where streaming leaves them open."""

    def wire_rate(self, sample_rate: int) -> int:
        """What the encoded audio has: `sample_rate`, or the next higher rate that the format
        carries, whole multiples first."""
        if self.rates is None or sample_rate in self.rates:
            return sample_rate
        higher = [rate for rate in self.rates if rate > sample_rate]
        if not higher:
            return max(self.rates)
        return min(higher, key=lambda rate: (rate % sample_rate != 0, rate))

    def encoder(self, sample_rate: int) -> Encoder:
        """A streaming encoder for int16 mono at `sample_rate`."""
        wire = self.wire_rate(sample_rate)
        inner = self.make(wire)
        return inner if wire == sample_rate else _Resampled(Resampler(sample_rate, wire), inner)

    def encode(self, pcm: Pcm, sample_rate: int) -> bytes:
        """int16 [n] -> a whole file with exact sizes."""
        if self.whole is None:
            encoder = self.encoder(sample_rate)
            return encoder.feed(pcm) + encoder.finish()
        wire = self.wire_rate(sample_rate)
        resampler = Resampler(sample_rate, wire)
        return self.whole(np.concatenate((resampler.feed(pcm), resampler.finish())), wire)


def _whole_wav(pcm: Pcm, sample_rate: int) -> bytes:
    data = to_bytes(pcm)
    return wav.header(sample_rate, len(data)) + data


def _whole_flac(pcm: Pcm, sample_rate: int) -> bytes:
    encoder = FlacEncoder(sample_rate)
    streamed = encoder.feed(pcm) + encoder.finish()
    header = encoder.final_header()
    return header + streamed[len(header) :]


def _mp3(sample_rate: int) -> Mp3Encoder:
    return Mp3Encoder(sample_rate, 64_000 if sample_rate <= 24000 else 96_000)


def _aac(sample_rate: int) -> AacEncoder:
    return AacEncoder(sample_rate, 80_000)


def _opus(sample_rate: int) -> OpusEncoder:
    return OpusEncoder(sample_rate, 48_000)


OGG_ALIAS = "ogg"

FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        row.name: row
        for row in (
            Format("mp3", "audio/mpeg", "mp3", _mp3, (16000, 22050, 24000, 32000, 44100, 48000)),
            Format("opus", "audio/ogg", "opus", _opus, (8000, 12000, 16000, 24000, 48000)),
            Format("aac", "audio/aac", "aac", _aac, (32000, 44100, 48000)),
            Format("flac", "audio/flac", "flac", FlacEncoder, whole=_whole_flac),
            Format("wav", "audio/wav", "s16le", WavEncoder, instant=True, whole=_whole_wav),
            Format("pcm", "audio/pcm", "s16le", PcmEncoder, instant=True),
        )
    }
)
"""Keyed by what `response_format` may say, in lower case, but for the alias `ogg` of opus."""


def find_format(name: str) -> Format | None:
    """By name in any case; None if there is no such format."""
    key = name.strip().lower()
    return FORMATS.get("opus" if key == OGG_ALIAS else key)
