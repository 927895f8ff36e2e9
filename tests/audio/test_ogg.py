import pytest
from hypothesis import given
from hypothesis import strategies as st

from phonate.audio.ogg import OggOpus, page_checksum


def slow_checksum(data):
    """RFC 3533 word for word, a bit at a time."""
    crc = 0
    for byte in data:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ 0x04C11DB7) & 0xFFFFFFFF if crc & 0x80000000 else crc << 1
    return crc


@given(st.binary(max_size=300))
def test_checksum_is_the_standard_one(data):
    assert page_checksum(data) == slow_checksum(data)


def test_a_page_by_hand():
    ogg = OggOpus(serial=0x01020304, pre_skip=312, input_rate=24000)
    ogg.headers()
    page = ogg.page(b"x" * 300, 1272, last=True)
    assert page[:6] == b"OggS\x00\x04"
    assert page[6:14] == (1272).to_bytes(8, "little")
    assert page[14:22] == b"\x04\x03\x02\x01\x02\x00\x00\x00"
    assert page[26:29] == bytes([2, 255, 45])
    assert page[29:] == b"x" * 300
    assert int.from_bytes(page[22:26], "little") == slow_checksum(page[:22] + bytes(4) + page[26:])


@pytest.mark.parametrize("size", [1, 254, 255, 256, 510])
def test_lacing_of_a_multiple_of_255_ends_with_a_shorter_segment(size):
    page = OggOpus(1, 0, 48000).page(b"p" * size, 0)
    lacing = page[27 : 27 + page[26]]
    assert sum(lacing) == size
    assert lacing[-1] < 255


def test_a_packet_too_large_for_a_page_is_refused():
    with pytest.raises(ValueError, match="one Ogg page"):
        OggOpus(1, 0, 48000).page(bytes(255 * 255), 0)
