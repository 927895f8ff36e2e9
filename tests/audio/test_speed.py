import gc
import weakref

import numpy as np
import pytest
from hearing import SR, cuttings, level, run, tone, voiced
from hypothesis import given, settings
from hypothesis import strategies as st

from phonate.audio.resample import RATES
from phonate.audio.speed import Speed

SPEEDS = (0.25, 0.3, 0.5, 0.51, 0.75, 0.99, 1.01, 1.25, 1.99, 2.0, 2.01, 3.0, 4.0)


def pitch(x, sample_rate=SR, above=0):
    spectrum = np.abs(np.fft.rfft(x * np.hanning(len(x))))
    spectrum[: above * len(x) // sample_rate] = 0
    return np.argmax(spectrum) * sample_rate / len(x)


@pytest.mark.parametrize("speed", SPEEDS)
def test_length_changes_and_pitch_does_not(speed):
    out = run(Speed(SR, speed), tone(3 * SR, hz=220))
    assert -1 <= len(out) - 3 * SR / speed <= 0.0201 * SR
    middle = out[len(out) // 4 : -len(out) // 4]
    assert abs(pitch(middle) - 220) < 6
    assert level(middle) == pytest.approx(level(tone(SR)), rel=0.1)


@pytest.mark.parametrize("sample_rate", RATES)
@pytest.mark.parametrize("speed", [0.25, 0.5, 1.5, 4.0])
@pytest.mark.parametrize("n_ms", [61, 100, 333, 1700])
def test_the_tail_is_there_at_any_length(sample_rate, speed, n_ms):
    n, tail = sample_rate * n_ms // 1000, sample_rate * 60 // 1000
    pcm = tone(n, sample_rate, hz=200, amplitude=4000)
    pcm[-tail:] = tone(tail, sample_rate, hz=2000, amplitude=20000)
    out = run(Speed(sample_rate, speed), pcm)
    assert -1 <= len(out) - n / speed <= 0.0201 * sample_rate + 1
    end = out[-int((0.06 / speed + 0.08 / min(speed, 1)) * sample_rate) :]
    assert abs(end.astype(int)).max() > 15000
    assert abs(pitch(end, sample_rate, above=1000) - 2000) < 40


@pytest.mark.parametrize("speed", [0.25, 0.9, 1.0, 4.0])
@pytest.mark.parametrize("n", [0, 1, 2, 479, 480, 481])
def test_tiny_input(speed, n):
    out = run(Speed(SR, speed), tone(n))
    assert out.dtype == np.int16
    assert -1 <= len(out) - n / speed <= 481


def test_one_is_no_work():
    speed, x = Speed(SR, 1), voiced(1000)
    assert speed.feed(x) is x
    assert len(speed.finish()) == 0


@pytest.mark.parametrize("speed", [0.25, 0.7, 1.3, 4.0])
@given(cuts=cuttings(9000), n=st.integers(0, 9000))
@settings(max_examples=15, deadline=None)
def test_any_cutting(speed, cuts, n):
    x = voiced(n)
    np.testing.assert_array_equal(run(Speed(SR, speed), x, cuts), run(Speed(SR, speed), x))


@pytest.mark.parametrize("speed", [0.25, 0.5, 0.9, 1.5, 2.0, 4.0])
def test_sound_comes_while_it_is_fed(speed):
    stage, pcm = Speed(SR, speed), voiced(SR * 2)
    came = [len(stage.feed(piece)) for piece in np.split(pcm, 100)]
    first = next(i for i, n in enumerate(came) if n)
    assert (first + 1) * 20 <= 260
    assert sum(came) >= len(pcm) / speed - SR * 0.5


@pytest.mark.parametrize("speed", [0, -1, 0.2499, 4.01, float("nan"), float("inf")])
def test_out_of_range(speed):
    with pytest.raises(ValueError, match=r"0.25..4"):
        Speed(SR, speed)


def test_loudest_input_does_not_wrap():
    out = run(Speed(SR, 1.3), tone(SR, hz=100, amplitude=32767)).astype(int)
    assert np.abs(np.diff(out)).max() < 20_000


def test_an_abandoned_filter_is_freed():
    stage = Speed(SR, 0.5)
    stage.feed(voiced(5000))
    graph = weakref.ref(stage)
    del stage
    gc.collect()
    assert graph() is None
