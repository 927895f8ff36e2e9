import numpy as np
import pytest
from hearing import SR, cuttings, run
from hypothesis import given, settings
from hypothesis import strategies as st

from phonate.audio.onset import OnsetTrim


def speech_after(silence_ms, sample_rate=SR, hiss=0.0, ms=300):
    n = sample_rate * silence_ms // 1000
    x = np.full(n + sample_rate * ms // 1000, 0.25, np.float32)
    x[:n] = hiss
    return x


@pytest.mark.parametrize("sample_rate", [8000, 16000, 22050, 24000, 44100, 48000])
@pytest.mark.parametrize("silence_ms", [125, 200, 460, 2000])
def test_silence_goes_but_for_15_ms(sample_rate, silence_ms):
    x = speech_after(silence_ms, sample_rate)
    out = run(OnsetTrim(sample_rate), x)
    onset = np.flatnonzero(np.abs(out) > 0.24)[0] / sample_rate
    assert (
        0.009 < onset <= 0.040
    )  # 15 ms kept, and the window that turns loud begins up to 5 ms early
    speech = sample_rate * 300 // 1000
    assert 0 <= len(out) - speech - 0.015 * sample_rate <= 0.0051 * sample_rate + 1
    np.testing.assert_array_equal(out[-speech + sample_rate // 50 :], 0.25)


def test_fade_in_is_linear_from_zero_and_only_as_long_as_said():
    out = run(OnsetTrim(SR), speech_after(200, hiss=0.004))
    np.testing.assert_allclose(out[:360], 0.004 * np.arange(360) / 360, rtol=1e-5)
    np.testing.assert_array_equal(out[360:], 0.25)


@pytest.mark.parametrize("silence_ms", [0, 4, 10, 15])
def test_no_cut_no_fade(silence_ms):
    x = speech_after(silence_ms)
    np.testing.assert_array_equal(run(OnsetTrim(SR), x), x)


def test_threshold_is_a_mean_and_exclusive():
    quiet = np.full(2400, 0.005, np.float32)
    quiet[::2] *= -1
    assert len(OnsetTrim(SR).feed(quiet)) == 0
    assert len(OnsetTrim(SR).feed(quiet * 1.01)) == 2400


@pytest.mark.parametrize("n", [0, 1, 119, 120, 50_000])
def test_never_loud_comes_out_whole_at_the_end(n):
    x = np.full(n, 0.001, np.float32)
    trim = OnsetTrim(SR)
    assert len(trim.feed(x)) == 0
    np.testing.assert_array_equal(trim.finish(), x)


def test_speech_in_the_last_part_of_a_window():
    x = np.zeros(2400 + 50, np.float32)
    x[2400:] = 0.5
    out = run(OnsetTrim(SR), x)
    assert len(out) == 360 + 50
    np.testing.assert_array_equal(out[-50:], 0.5)


def test_speech_comes_out_as_soon_as_it_is_there():
    trim = OnsetTrim(SR)
    assert len(trim.feed(np.zeros(4800, np.float32))) == 0
    assert len(trim.feed(np.full(120, 0.5, np.float32))) == 480
    assert len(trim.feed(np.zeros(1, np.float32))) == 1
    assert len(trim.finish()) == 0


def test_off():
    trim = OnsetTrim(SR, enabled=False)
    x = np.zeros(5000, np.float32)
    np.testing.assert_array_equal(trim.feed(x), x)
    assert len(trim.finish()) == 0


def test_other_parameters():
    trim = OnsetTrim(SR, threshold=0.1, window_ms=10, keep_ms=0, fade_ms=0)
    x = speech_after(100, hiss=0.09)
    np.testing.assert_array_equal(run(trim, x), x[2400:])


def test_what_is_no_number_is_no_speech_and_does_not_spread():
    x = np.zeros(4800, np.float32)
    x[100] = np.nan
    assert len(OnsetTrim(SR).feed(x)) == 0
    x[4000] = np.inf
    out = run(OnsetTrim(SR), x)
    assert np.isfinite(out).all()
    assert out.max() == 1.0


@given(cuttings(4000), st.integers(0, 4000), st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_cutting(cuts, silence, fade):
    x = np.random.default_rng(silence).normal(0, 0.2, 4000).astype(np.float32)
    x[:silence] *= 0.005
    make = lambda: OnsetTrim(SR, fade_ms=15.0 if fade else 0.0)  # noqa: E731
    np.testing.assert_array_equal(run(make(), x, cuts), run(make(), x))
