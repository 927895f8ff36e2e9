import io

import numpy as np
import pytest
import soundfile
from hearing import SR, voiced

from phonate.audio.pcm import to_floats
from phonate.audio.reference import load_reference, with_silent_end
from phonate.errors import InvalidRequest


def wav(x, rate=SR):
    file = io.BytesIO()
    soundfile.write(file, x, rate, format="WAV", subtype="PCM_16")
    return file.getvalue()


def speech(seconds):
    return to_floats(voiced(int(seconds * SR)))


@pytest.mark.parametrize("seconds", [1.0, 5.0, 30.0])
def test_good_ones(seconds):
    assert load_reference(wav(speech(seconds))).seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (speech(0.2), "0.20 s long"),
        (speech(0.99), "0.99 s long"),
        (speech(40), "longer than 30 s"),
        (np.zeros(3 * SR), "silent: 0.0 s of 3.0 s"),
        (speech(3) * 0.003, "silent"),
        (np.random.default_rng(0).normal(0, 0.001, 3 * SR), "silent"),
        (np.concatenate((speech(0.3), np.zeros(20 * SR))), "silent: 0.3 s"),
        (np.clip(speech(3) * 5, -1, 1), "clipped"),
    ],
    ids=["0.2s", "0.99s", "40s", "zeros", "whisper", "hiss", "one word in 20 s", "overdriven"],
)
def test_refused_with_the_reason(x, words):
    with pytest.raises(InvalidRequest, match=words) as caught:
        load_reference(wav(x), param="audio")
    assert caught.value.param == "audio"


def test_loud_and_quiet_speech_pass():
    x = speech(3)
    load_reference(wav(x / np.abs(x).max()))
    load_reference(wav(x * 0.03))


def test_a_reference_that_ends_in_sound_gets_a_pause():
    x = np.full(SR, 0.1, np.float32)
    before = x.copy()
    out = with_silent_end(x, SR)
    np.testing.assert_array_equal(x, before)
    assert len(out) == SR + SR // 2
    np.testing.assert_array_equal(out[: SR - 240], x[: SR - 240])
    assert (np.diff(out[SR - 240 : SR]) < 0).all()
    assert not out[SR:].any()


def test_a_reference_that_ends_quietly_stays():
    x = np.concatenate((speech(1), np.zeros(SR // 10, np.float32)))
    assert with_silent_end(x, SR) is x


@pytest.mark.parametrize("n", [0, 1, 100, 480, 481])
def test_tiny_references(n):
    out = with_silent_end(np.full(n, 0.1, np.float32), SR)
    assert len(out) == (n + SR // 2 if n >= 480 else n)
