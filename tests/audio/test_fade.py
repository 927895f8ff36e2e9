import numpy as np
import pytest
from hearing import SR, cuttings, run
from hypothesis import given, settings
from hypothesis import strategies as st

from phonate.audio.fade import FadeOut


@pytest.mark.parametrize("sample_rate", [8000, 22050, 24000, 48000])
def test_the_last_15_ms_of_a_long_fragment_fade_to_zero(sample_rate):
    x = np.ones(2 * sample_rate, np.float32)
    n = round(0.015 * sample_rate)
    out = run(FadeOut(sample_rate), x)
    assert len(out) == len(x)
    np.testing.assert_array_equal(out[:-n], 1)
    np.testing.assert_allclose(out[-n:], np.arange(n - 1, -1, -1) / n, rtol=1e-6)


@pytest.mark.parametrize("n", [0, 1, 361, 23999, 24000])
def test_a_short_fragment_is_left_alone_and_not_held_back(n):
    x = np.ones(n, np.float32)
    fade = FadeOut(SR)
    np.testing.assert_array_equal(fade.feed(x), x)
    assert len(fade.finish()) == 0


def test_just_over_a_second_fades_what_there_is():
    out = run(FadeOut(SR), np.ones(24010, np.float32))
    np.testing.assert_array_equal(out[:24000], 1)
    np.testing.assert_allclose(out[24000:], np.arange(9, -1, -1) / 10, rtol=1e-6)


def test_only_15_ms_are_held_back():
    fade = FadeOut(SR)
    assert len(fade.feed(np.ones(24000, np.float32))) == 24000
    assert len(fade.feed(np.ones(360, np.float32))) == 0
    assert len(fade.feed(np.ones(5000, np.float32))) == 5000


def test_off_and_other_parameters():
    x = np.ones(50_000, np.float32)
    for off in (FadeOut(SR, enabled=False), FadeOut(SR, fade_ms=0)):
        np.testing.assert_array_equal(off.feed(x), x)
        assert len(off.finish()) == 0
    out = run(FadeOut(SR, after_ms=0, fade_ms=1), x[:100])
    assert (out[:76] == 1).all()
    assert out[-1] == 0


def test_infinity_does_not_become_nan():
    x = np.ones(30_000, np.float32)
    x[-1], x[-2], x[0] = np.inf, -np.inf, np.nan
    assert np.isfinite(run(FadeOut(SR), x)).all()


@given(cuttings(700), st.integers(0, 700))
@settings(max_examples=150, deadline=None)
def test_any_cutting(cuts, n):
    x = np.random.default_rng(n).normal(0, 0.2, n).astype(np.float32)
    make = lambda: FadeOut(8000, after_ms=40)  # noqa: E731
    np.testing.assert_array_equal(run(make(), x, cuts), run(make(), x))
