"""Opus packets -> an Ogg stream (RFC 3533, RFC 7845), one page per 20 ms packet.

Small pages are what makes it stream: a muxer that fills its pages holds a second of sound back.
"""

from __future__ import annotations

import struct
import zlib

OPUS_RATE = 48000
"""Granule positions count at this rate, whatever the input's."""

_CONTINUED, _FIRST, _LAST = 1, 2, 4
_MAX_LACING = 255
_REVERSED = bytes(int(f"{b:08b}"[::-1], 2) for b in range(256))
_VENDOR = b"phonate"


def page_checksum(page: bytes) -> int:
    """CRC-32 of an Ogg page, polynomial 0x04c11db7, most significant bit first, no inversion.

    zlib has the same polynomial with the bits the other way round and inverted at both ends, so
    turn the bits, undo the inversions, turn the result: C speed without a table of our own.
    """
    turned = zlib.crc32(page.translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int.from_bytes(turned.to_bytes(4, "little").translate(_REVERSED), "big")


class OggOpus:
    """Pages of one logical stream. `serial` tells the streams of a chain apart."""

    def __init__(self, serial: int, pre_skip: int, input_rate: int) -> None:
        """pre_skip: samples at 48 kHz that a decoder drops at the start (the encoder's delay)."""
        self._serial = serial & 0xFFFFFFFF
        self._sequence = 0
        self._head = struct.pack("<8sBBHIhB", b"OpusHead", 1, 1, pre_skip, input_rate, 0, 0)

    def headers(self) -> bytes:
        tags = struct.pack("<8sI", b"OpusTags", len(_VENDOR)) + _VENDOR + struct.pack("<I", 0)
        return self._page(self._head, 0, _FIRST) + self._page(tags, 0, 0)

    def page(self, packet: bytes, granule: int, *, last: bool = False) -> bytes:
        """granule: samples at 48 kHz decoded after this packet, pre-skip included. On the last page
        it may cut the packet short: that is how the exact length survives."""
        return self._page(packet, granule, _LAST if last else 0)

    def _page(self, packet: bytes, granule: int, flags: int) -> bytes:
        full, rest = divmod(len(packet), _MAX_LACING)
        lacing = bytes([_MAX_LACING] * full + [rest]) if packet else b""
        if len(lacing) > _MAX_LACING:
            raise ValueError(f"{len(packet)} bytes do not fit on one Ogg page.")
        before = struct.pack("<4sBBqII", b"OggS", 0, flags, granule, self._serial, self._sequence)
        after = bytes([len(lacing)]) + lacing + packet
        self._sequence += 1
        checksum = page_checksum(before + bytes(4) + after)
        return before + struct.pack("<I", checksum) + after
