import io
import time

import av
import numpy as np
import pytest
import soundfile
from hearing import level, run, tone, voiced
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from phonate.audio.decode import MAX_BYTES, decode
from phonate.audio.encoders import FORMATS
from phonate.audio.pcm import to_floats
from phonate.errors import InvalidRequest, PhonateError, TooLarge, UnsupportedMedia

CONTAINERS = {
    "wav": ("wav", "pcm_s16le"),
    "wav of bytes": ("wav", "pcm_u8"),
    "wav of 24 bits": ("wav", "pcm_s24le"),
    "wav of floats": ("wav", "pcm_f32le"),
    "wav of doubles": ("wav", "pcm_f64le"),
    "mp3": ("mp3", "libmp3lame"),
    "ogg": ("ogg", "libopus"),
    "ogg flac": ("ogg", "flac"),
    "flac": ("flac", "flac"),
    "aac": ("adts", "aac"),
    "m4a": ("ipod", "aac"),
    "mp4": ("mp4", "aac"),
    "mov": ("mov", "pcm_s16le"),
    "webm": ("webm", "libopus"),
    "mkv": ("matroska", "flac"),
}


def upload(kind="wav", seconds=2.0, rate=48000, channels=2, pcm=None):
    """A file of that kind: the same voice in every channel."""
    container, codec = CONTAINERS[kind]
    pcm = voiced(int(seconds * rate), rate) if pcm is None else pcm
    layout = {1: "mono", 2: "stereo"}[channels]
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=rate, layout=layout)
        planes = np.ascontiguousarray(np.repeat(pcm, channels)[np.newaxis])
        frame = av.AudioFrame.from_ndarray(planes, "s16", layout)
        frame.sample_rate, frame.pts = rate, 0
        resampler = av.AudioResampler(stream.codec_context.format, layout, rate)
        for packed in resampler.resample(frame):
            output.mux(stream.encode(packed))
        output.mux(stream.encode(None))
    return file.getvalue()


def wav(x, rate=24000):
    file = io.BytesIO()
    soundfile.write(file, x, rate, format="WAV", subtype="FLOAT")
    return file.getvalue()


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("channels", [1, 2])
def test_every_container_sounds_the_same(kind, channels):
    got = decode(upload(kind, channels=channels))
    assert got.samples.dtype == np.float32
    assert got.sample_rate == 24000
    assert abs(got.seconds - 2.0) < 0.06
    assert (got.original_rate, got.channels) == (48000, channels)
    assert level(got.samples) == pytest.approx(level(to_floats(voiced(96000, 48000))), rel=0.06)
    assert 0.3 < got.peak < 0.6
    assert got.clipped == 0


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 24000, 44100, 48000, 96000])
def test_every_rate_becomes_24_khz(rate):
    got = decode(upload("flac", 1.5, rate, 1, tone(rate * 3 // 2, rate, hz=500)))
    assert abs(len(got.samples) - 36000) <= 1
    spectrum = np.abs(np.fft.rfft(got.samples))
    assert abs(np.argmax(spectrum) * 24000 / len(got.samples) - 500) < 2


def test_it_is_the_same_audio_sample_for_sample():
    pcm = voiced(48000)
    np.testing.assert_allclose(
        decode(upload("wav", rate=24000, pcm=pcm)).samples, pcm / 32768, atol=1e-6
    )


@pytest.mark.parametrize("name", ["mp3", "opus", "aac", "flac", "wav"])
@pytest.mark.parametrize("whole", [True, False])
def test_what_we_send_can_be_uploaded(name, whole):
    form, pcm = FORMATS[name], voiced(48000)
    data = form.encode(pcm, 24000) if whole else run(form.encoder(24000), pcm)
    assert abs(decode(data).seconds - 2) < 0.08


def test_a_file_object_is_read_from_its_start(tmp_path):
    path = tmp_path / "voice.txt"  # The suffix plays no part.
    path.write_bytes(upload("m4a"))
    with path.open("rb") as file:
        file.seek(100)
        assert abs(decode(file).seconds - 2) < 0.06


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (b"", InvalidRequest, "empty"),
        (b"x", UnsupportedMedia, "not audio"),
        (b"hello " * 1000, UnsupportedMedia, "not audio"),
        (bytes(100_000), UnsupportedMedia, "not audio"),
        (b"\x89PNG\r\n\x1a\n" + bytes(500), UnsupportedMedia, "not audio"),
        (bytes(MAX_BYTES + 1), TooLarge, "10,485,760"),
        (b"RIFF\xff\xff\xff\xffWAVE", UnsupportedMedia, "not audio"),
    ],
)
def test_what_is_not_audio(data, error, words):
    with pytest.raises(error, match=words) as caught:
        decode(data, param="voice_file")
    assert type(caught.value) is error
    assert caught.value.param == "voice_file"
    assert "voice_file" in caught.value.message


@pytest.mark.parametrize("kind", ["aiff", "au", "avi", "caf"])
def test_a_container_off_the_list_is_refused(kind):
    file = io.BytesIO()
    with av.open(file, "w", format=kind) as output:
        stream = output.add_stream("pcm_s16be" if kind != "avi" else "pcm_s16le", rate=24000)
        frame = av.AudioFrame.from_ndarray(voiced(48000)[np.newaxis], "s16", "mono")
        frame.sample_rate = 24000
        output.mux(stream.encode(frame))
    with pytest.raises(UnsupportedMedia):
        decode(file.getvalue())


@pytest.mark.parametrize(
    "script",
    [
        "ffconcat version 1.0\nfile {}\n",
        "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{}\n#EXT-X-ENDLIST\n",
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 9 RTP/AVP 0\n",
        '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><a>{}</a></MPD>',
    ],
)
def test_a_playlist_opens_nothing(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # FFmpeg trusts relative names most.
    target = tmp_path / "secret.wav"
    target.write_bytes(upload())
    for name in (target.name, str(target)):
        with pytest.raises(UnsupportedMedia):
            decode(script.format(name).encode())


def test_a_film_without_sound():
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as output:
        stream = output.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 64
        for at in range(10):
            frame = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), "rgb24")
            frame.pts = at
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    with pytest.raises(UnsupportedMedia, match="no audio in it"):
        decode(file.getvalue())


@pytest.mark.parametrize("kind", ["wav", "mp3", "flac", "webm", "mkv", "m4a"])
def test_half_a_file_is_refused(kind):
    data = upload(kind, seconds=4)
    with pytest.raises(PhonateError, match=r"cut short|not audio"):
        decode(data[: len(data) // 2])


def test_a_few_missing_bytes_are_forgiven():
    data = upload("wav", seconds=4)
    assert abs(decode(data[:-3001]).seconds - 4) < 0.1


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF024])
def test_a_streamed_wav_promises_no_length(size):
    data = bytearray(upload("wav", rate=24000, channels=1))
    data[4:8] = size.to_bytes(4, "little")
    assert abs(decode(bytes(data)).seconds - 2) < 0.01


def test_longer_than_30_s():
    assert decode(upload("ogg", 30.0, 24000, 1)).seconds == pytest.approx(30, abs=0.02)
    with pytest.raises(InvalidRequest, match="longer than 30 s"):
        decode(upload("ogg", 31.0, 24000, 1))
    with pytest.raises(InvalidRequest, match="longer than 2 s"):
        decode(upload("mp3", 3.0), max_seconds=2)


def test_decoding_stops_at_the_limit():
    """Six hours of silence in a megabyte or two."""
    n = 24000 * 600
    data = FORMATS["flac"].encode(np.zeros(n, np.int16), 24000) * 1
    assert len(data) < 1 << 20
    begin = time.process_time()
    with pytest.raises(InvalidRequest, match="longer"):
        decode(data)
    assert time.process_time() - begin < 1.0


@pytest.mark.parametrize("noise", [True, False])
def test_ten_megabytes_of_nothing_are_quick(noise):
    data = np.random.default_rng(1).bytes(MAX_BYTES) if noise else bytes(MAX_BYTES)
    begin = time.process_time()
    with pytest.raises(PhonateError):
        decode(data)
    assert time.process_time() - begin < 2.0


def test_clipping_is_measured_before_mixing():
    x = np.zeros((48000, 2), np.float32)
    x[:, 0] = to_floats(voiced(48000))
    x[1000:2000, 1] = 1.0
    got = decode(wav(x))
    assert got.peak == 1.0
    assert got.clipped == pytest.approx(1000 / 48000, rel=0.01)


def test_channels_that_cancel_are_not_silence():
    x = to_floats(voiced(48000))
    np.testing.assert_allclose(decode(wav(np.stack([x, -x], 1))).samples, x, atol=1e-6)
    np.testing.assert_allclose(decode(wav(np.stack([x, x], 1))).samples, x, atol=1e-6)
    half = decode(wav(np.stack([0 * x, x], 1))).samples
    np.testing.assert_allclose(half, x / 2, atol=1e-6)


def test_floats_that_are_no_numbers():
    x = to_floats(voiced(48000))
    x[100:200], x[300] = np.nan, np.inf
    got = decode(wav(x))
    assert np.isfinite(got.samples).all()
    assert got.peak == 1.0


def test_too_many_channels():
    with pytest.raises(InvalidRequest, match="9 channels"):
        decode(wav(np.zeros((24000, 9), np.float32)))


def test_sound_beside_a_picture(tmp_path):
    """Cover art is a video stream; it is neither decoded nor in the way."""
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as output:
        film = output.add_stream("mjpeg", rate=10)
        film.width = film.height = 64
        film.pix_fmt = "yuvj420p"
        sound = output.add_stream("flac", rate=24000, layout="mono")
        picture = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), "rgb24")
        picture.pts = 0
        frame = av.AudioFrame.from_ndarray(voiced(48000)[np.newaxis], "s16", "mono")
        frame.sample_rate, frame.pts = 24000, 0
        output.mux(film.encode(picture))
        output.mux(film.encode(None))
        output.mux(sound.encode(frame))
        output.mux(sound.encode(None))
    assert decode(file.getvalue()).seconds == 2.0


GOOD = {kind: upload(kind, 1.2, 24000 if kind != "ogg" else 48000, 1) for kind in CONTAINERS}


@given(st.sampled_from(sorted(GOOD)), st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damage_gives_audio_or_our_error(kind, data):
    broken = bytearray(GOOD[kind])
    for _ in range(data.draw(st.integers(1, 6))):
        start = data.draw(
            st.integers(0, min(600, len(broken) - 1)) | st.integers(0, len(broken) - 1)
        )
        patch = data.draw(st.binary(min_size=1, max_size=40))
        broken[start : start + len(patch)] = patch
    if data.draw(st.booleans()):
        del broken[data.draw(st.integers(0, len(broken))) :]
    try:
        got = decode(bytes(broken))
    except PhonateError as refused:
        event(f"refused: {type(refused).__name__}")
    else:
        assert np.isfinite(got.samples).all()
        assert got.seconds <= 30.2
