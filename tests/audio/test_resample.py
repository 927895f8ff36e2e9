import numpy as np
import pytest
import soxr
from hearing import cuttings, level, run, tone, voiced
from hypothesis import given, settings
from hypothesis import strategies as st

from phonate.audio.pcm import to_floats, to_pcm
from phonate.audio.resample import RATES, Resampler, resample


@pytest.mark.parametrize("target", RATES)
@pytest.mark.parametrize("source", [8000, 24000, 44100])
def test_streamed_is_whole(source, target):
    x = voiced(source // 2 + 77, source)
    whole = run(Resampler(source, target), x)
    pieces = run(Resampler(source, target), x, range(0, len(x), 501))
    np.testing.assert_array_equal(pieces, whole)
    assert abs(len(whole) - len(x) * target / source) <= 1
    if source == target:
        np.testing.assert_array_equal(whole, x)
    else:
        batch = to_pcm(soxr.resample(to_floats(x), source, target, quality="HQ"))
        np.testing.assert_allclose(whole, batch, atol=1)


@given(cuttings(3000), st.sampled_from(RATES))
@settings(max_examples=40, deadline=None)
def test_any_cutting(cuts, target):
    x = voiced(3000)
    np.testing.assert_array_equal(
        run(Resampler(24000, target), x, cuts), run(Resampler(24000, target), x)
    )


@pytest.mark.parametrize("n", [0, 1, 2, 7])
@pytest.mark.parametrize("target", RATES)
def test_tiny_input(n, target):
    out = run(Resampler(24000, target), tone(n))
    assert out.dtype == np.int16
    assert abs(len(out) - n * target / 24000) <= 1


def test_what_the_target_cannot_carry_is_gone():
    assert level(run(Resampler(24000, 8000), tone(24000, hz=6000))) < 40
    assert level(run(Resampler(24000, 8000), tone(24000, hz=1000))) > 8000


def test_full_scale_does_not_wrap():
    x = np.where(np.arange(4800) // 60 % 2, 32767, -32767).astype(np.int16)
    out = run(Resampler(24000, 48000), x).astype(int)
    assert np.abs(np.diff(out)).max() < 50000  # A wrap is a jump of 65535.


def test_whole_floats():
    x = to_floats(tone(2400))
    assert resample(x, 24000, 24000) is x
    assert len(resample(x, 24000, 16000)) == 1600
    assert len(resample(x[:0], 24000, 16000)) == 0
