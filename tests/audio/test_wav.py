import io
import struct
import wave

import pytest

from phonate.audio import wav


@pytest.mark.parametrize("rate", [8000, 22050, 24000, 48000])
@pytest.mark.parametrize("n", [0, 1, 12345])
def test_whole_header_is_read_by_the_standard_library(rate, n):
    head = wav.header(rate, 2 * n)
    with wave.open(io.BytesIO(head + bytes(2 * n))) as reader:
        assert reader.getparams()[:4] == (1, 2, rate, n)
    assert len(head) == wav.HEADER_BYTES
    assert head[36:40] == b"data"
    assert struct.unpack_from("<I", head, 4)[0] == 36 + 2 * n
    assert struct.unpack_from("<I", head, 40)[0] == 2 * n


def test_streamed_sizes_are_unknown_not_zero():
    head = wav.header(24000)
    assert head[4:8] == head[40:44] == b"\xff\xff\xff\xff"
    with wave.open(io.BytesIO(head + bytes(2000))) as reader:
        assert reader.getframerate() == 24000


def test_more_than_riff_can_hold_is_refused():
    wav.header(24000, 0xFFFFFFFF - 38)
    with pytest.raises(ValueError, match="4 GiB"):
        wav.header(24000, 0xFFFFFFFF - 36)
