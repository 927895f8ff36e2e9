import gc
import io
import struct
import weakref

import av
import numpy as np
import pytest
from hearing import cuttings, decode, level, run, tone, voiced
from hypothesis import given, settings
from hypothesis import strategies as st

from phonate.audio import encoders
from phonate.audio.encoders import FORMATS, find_format
from phonate.audio.ogg import page_checksum
from phonate.audio.resample import RATES, resample
from phonate.audio.speed import Speed

LOSSY = ("mp3", "opus", "aac")
LOSSLESS = ("flac", "wav", "pcm")
MAGIC = {
    "mp3": lambda b: b[0] == 0xFF and b[1] & 0xE6 == 0xE2,  # sync, layer III
    "opus": lambda b: b[:4] == b"OggS" and b[28:36] == b"OpusHead",
    "aac": lambda b: b[0] == 0xFF and b[1] == 0xF1,
    "flac": lambda b: b[:4] == b"fLaC",
    "wav": lambda b: b[:4] == b"RIFF" and b[8:12] == b"WAVE",
    "pcm": lambda b: len(b) % 2 == 0,
}


def decoded(name, data, rate):
    if name == "pcm":
        return np.frombuffer(data, "<i2") / 32768, rate
    return decode(data)


def made(name, pcm, rate, whole):
    form = FORMATS[name]
    return (
        form.encode(pcm, rate) if whole else run(form.encoder(rate), pcm, range(0, len(pcm), 999))
    )


def ogg_pages(data):
    """(flags, granule, serial, sequence, body) of each page; fails on junk between them."""
    at = 0
    while at < len(data):
        assert data[at : at + 4] == b"OggS"
        flags, granule, serial, sequence, checksum = struct.unpack_from("<xBqIII", data, at + 4)
        lacing = data[at + 27 : at + 27 + data[at + 26]]
        end = at + 27 + len(lacing) + sum(lacing)
        page = data[at : at + 22] + bytes(4) + data[at + 26 : end]
        assert checksum == page_checksum(page)
        yield flags, granule, serial, sequence, data[at + 27 + len(lacing) : end]
        at = end


def test_the_table():
    assert set(FORMATS) == {"mp3", "opus", "aac", "flac", "wav", "pcm"}
    assert all(name == form.name for name, form in FORMATS.items())
    types = {form.content_type for form in FORMATS.values()}
    assert types == {f"audio/{kind}" for kind in ("mpeg", "ogg", "aac", "flac", "wav", "pcm")}


@pytest.mark.parametrize(
    ("said", "meant"),
    [("mp3", "mp3"), ("OGG", "opus"), (" Wav ", "wav"), ("m4a", None), ("", None)],
)
def test_finding_a_format(said, meant):
    found = find_format(said)
    assert (found.name if found else None) == meant


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "streamed"])
@pytest.mark.parametrize("speed", [0.5, 1, 2])
def test_magic_length_and_tail(name, whole, speed):
    rate = 24000
    pcm = voiced(rate + 431)
    tail = rate * 6 // 100
    pcm[-tail:] = tone(tail, hz=3000, amplitude=20000)
    data = made(name, run(Speed(rate, speed), pcm), rate, whole)
    assert MAGIC[name](data)
    x, got_rate = decoded(name, data, rate)
    assert abs(len(x) / got_rate - len(pcm) / rate / speed) <= 0.080
    # The tone is in the last 60 ms / speed and in what a codec may add behind it.
    end = x[-int(got_rate * (0.06 / speed + 0.08)) :]
    spectrum = np.abs(np.fft.rfft(end * np.hanning(len(end))))
    peak = np.argmax(spectrum) * got_rate / len(end)
    assert abs(peak - 3000) < 60
    assert np.abs(end).max() > 0.4


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("rate", RATES)
def test_every_rate(name, rate):
    form = FORMATS[name]
    rng = np.random.default_rng(rate)
    for n in rng.integers(rate // 3, rate // 2, 4):
        pcm = voiced(int(n), rate)
        data = form.encode(pcm, rate)
        x, got_rate = decoded(name, data, form.wire_rate(rate))
        assert got_rate == form.wire_rate(rate)
        assert abs(len(x) / got_rate - n / rate) <= 0.080
        assert level(x) == pytest.approx(level(pcm) / 32768, rel=0.15)


@pytest.mark.parametrize("name", ["mp3", "opus", "flac", "wav"])
def test_a_second_decoder_agrees(name):
    data = FORMATS[name].encode(voiced(12345), 24000)
    ours, ours_rate = decode(data)
    theirs, theirs_rate = decode(data, ffmpeg=True)
    # libsndfile decodes Opus at the rate it was made from, FFmpeg always at 48 kHz.
    assert theirs_rate == (48000 if name == "opus" else ours_rate)
    if theirs_rate != ours_rate:
        ours = resample(ours.astype(np.float32), ours_rate, theirs_rate)
    assert len(ours) == len(theirs)
    assert level(ours - theirs) < level(ours) * (0.1 if name == "opus" else 1e-4)


@pytest.mark.parametrize("name", FORMATS)
@given(cuts=cuttings(6000), n=st.integers(0, 6000), rate=st.sampled_from((22050, 24000)))
@settings(max_examples=15, deadline=None)
def test_same_bytes_for_any_cutting(name, cuts, n, rate):
    pcm = voiced(n, rate)
    assert run(FORMATS[name].encoder(rate), pcm, cuts) == run(FORMATS[name].encoder(rate), pcm)


@pytest.mark.parametrize("name", ["wav", "flac"])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("n", [0, 1, 575, 576, 577, 24001])
def test_lossless_is_sample_exact(name, whole, n):
    pcm = voiced(n)
    pcm[:2] = (-32768, 32767)[: len(pcm)]
    data = made(name, pcm, 24000, whole)
    if name == "flac" and n == 0:
        assert len(data) == 42  # libFLAC has no word for an empty file.
        return
    if name == "wav":
        assert len(data) == 44 + 2 * n
        np.testing.assert_array_equal(np.frombuffer(data[44:], "<i2"), pcm)
        sizes = struct.unpack_from("<4xI32xI", data)
        assert sizes == ((36 + 2 * n, 2 * n) if whole else (0xFFFFFFFF, 0xFFFFFFFF))
    x, _ = decode(data)
    np.testing.assert_array_equal(np.rint(x * 32768).astype(np.int16), pcm)


def test_whole_flac_knows_its_length_and_checksum():
    pcm = voiced(33333)
    whole, streamed = FORMATS["flac"].encode(pcm, 24000), made("flac", pcm, 24000, False)
    total = int.from_bytes(whole[8:42][13:18], "big") & 0xF_FFFF_FFFF
    assert total == 33333
    assert whole[26:42] != bytes(16)
    assert int.from_bytes(streamed[8:42][13:18], "big") & 0xF_FFFF_FFFF == 0
    assert whole[42:] == streamed[42:]


@pytest.mark.parametrize("rate", [8000, 22050, 24000, 48000])
@pytest.mark.parametrize("n", [1, 479, 480, 481, 960, 24000, 24480, 30007])
def test_opus_pages_and_exact_length(rate, n):
    pages = list(ogg_pages(FORMATS["opus"].encode(voiced(n, rate), rate)))
    assert [page[3] for page in pages] == list(range(len(pages)))
    assert len({page[2] for page in pages}) == 1
    assert [page[0] for page in pages] == [2] + [0] * (len(pages) - 2) + [4]
    granules = [page[1] for page in pages[2:]]
    assert granules == sorted(granules)
    pre_skip = int.from_bytes(pages[0][4][10:12], "little")
    assert abs(granules[-1] - pre_skip - n * 48000 / rate) <= 2
    # Enough packets of 20 ms to hold it all: no lost tail.
    assert (len(pages) - 2) * 960 >= granules[-1]


def test_opus_bodies_joined_are_a_chain():
    first, second = (FORMATS["opus"].encode(voiced(9600, seed=s), 24000) for s in (1, 2))
    serials = {page[2] for page in ogg_pages(first + second)}
    assert len(serials) == 2
    x, _ = decode(first + second, ffmpeg=True)
    assert abs(len(x) / 48000 - 0.8) < 0.02


@pytest.mark.parametrize("rate", [16000, 24000, 48000])
@pytest.mark.parametrize("whole", [True, False])
def test_mp3_bodies_joined_decode_to_the_sum(rate, whole):
    bodies = [made("mp3", voiced(rate + k, rate, seed=k), rate, whole) for k in (0, 300)]
    assert b"ID3" not in bodies[0][:10] + bodies[1][:10]
    for ffmpeg in (False, True):
        alone = [decode(body, ffmpeg=ffmpeg)[0] for body in bodies]
        both, _ = decode(b"".join(bodies), ffmpeg=ffmpeg)
        assert len(both) == sum(map(len, alone))
        assert level(both[-rate // 2 :]) == pytest.approx(level(alone[1][-rate // 2 :]), rel=0.02)


def test_mp3_says_its_length_by_its_size():
    with av.open(io.BytesIO(FORMATS["mp3"].encode(voiced(24000 * 5), 24000))) as container:
        assert container.duration / av.time_base == pytest.approx(5.0, abs=0.080)


@pytest.mark.parametrize("rate", [16000, 24000, 44100])
def test_mp3_keeps_the_first_milliseconds_loud(rate):
    """The dropped frame holds delay only: a sound that starts at once starts at once."""
    x, _ = decode(FORMATS["mp3"].encode(tone(rate, rate), rate))
    start = int(np.argmax(np.abs(x) > 0.2))
    assert start < 0.035 * rate if rate <= 24000 else start < 1200
    body = x[start + 30 : start + 30 + rate // 100]
    assert level(body) == pytest.approx(12000 / 32768 / np.sqrt(2), rel=0.1)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("rate", RATES)
def test_bytes_come_with_the_first_audio(name, rate):
    """What StartupBuffer lets go first, 160 ms, must be enough for every format."""
    encoder = FORMATS[name].encoder(rate)
    assert encoder.feed(voiced(0)) == b""
    # The resampler to 16 kHz adds 110 ms to an mp3 of 8 kHz.
    hold_ms = 240 if (name, rate) == ("mp3", 8000) else 160
    first = encoder.feed(voiced(rate * hold_ms // 1000, rate))
    header = {"wav": 44, "flac": 42, "opus": 150}.get(name, 0)
    assert len(first) > header


@pytest.mark.parametrize("name", FORMATS)
def test_no_gap_while_streaming(name):
    """Fed 20 ms at a time, at most 60 ms of input pass without a byte."""
    encoder = FORMATS[name].encoder(24000)
    pcm = voiced(48000)
    came = [len(encoder.feed(piece)) > 0 for piece in np.split(pcm, 100)]
    gaps = "".join("x" if here else "." for here in came[8:]).split("x")
    assert max(map(len, gaps)) <= 2


@pytest.mark.parametrize("name", FORMATS)
def test_an_end_is_an_end(name):
    encoder = FORMATS[name].encoder(24000)
    encoder.feed(voiced(4000))
    assert encoder.finish() or name in ("wav", "pcm")
    assert encoder.finish() == b""
    with pytest.raises(ValueError, match="finished"):
        encoder.feed(voiced(10))


@pytest.mark.parametrize("name", LOSSY)
def test_no_audio_is_still_a_file(name):
    x, rate = decode(FORMATS[name].encode(voiced(0), 24000), ffmpeg=True)
    assert len(x) / rate <= 0.080
    assert level(x) < 1e-3


@pytest.mark.parametrize("name", FORMATS)
def test_loudest_input_does_not_wrap(name):
    loud = tone(24000, amplitude=32767)
    loud[100] = -32768
    x, _ = decoded(name, FORMATS[name].encode(loud, 24000), 24000)
    assert np.abs(x).max() < 1.4
    assert level(x) == pytest.approx(np.sqrt(0.5), abs=0.07)


@pytest.mark.parametrize("name", FORMATS)
def test_an_abandoned_encoder_is_freed(name):
    encoder = FORMATS[name].encoder(24000)
    encoder.feed(voiced(5000))
    freed = weakref.ref(encoder)
    del encoder
    assert freed() is None, "something keeps a cycle around the codec"


def test_abandoned_encoders_do_not_pile_up():
    def resident():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    pcm = voiced(3000)

    def abandon(times):
        for _ in range(times):
            for form in FORMATS.values():
                form.encoder(22050).feed(pcm)
        gc.collect()

    abandon(20)
    before = resident()
    abandon(60)
    assert resident() - before < 8 << 20


@pytest.mark.parametrize(
    ("name", "asked", "wire"),
    [
        ("mp3", 8000, 16000),
        ("mp3", 24000, 24000),
        ("opus", 22050, 24000),
        ("opus", 44100, 48000),
        ("opus", 96000, 48000),
        ("aac", 8000, 32000),
        ("aac", 16000, 32000),
        ("aac", 22050, 44100),
        ("aac", 24000, 48000),
        ("flac", 11025, 11025),
        ("wav", 12345, 12345),
    ],
)
def test_wire_rate(name, asked, wire):
    assert FORMATS[name].wire_rate(asked) == wire


def test_aac_rates_are_the_standard_table():
    assert encoders.AacEncoder._RATES.index(24000) == 6
    assert encoders.AacEncoder._RATES.index(8000) == 11
