import numpy as np
import pytest
from hearing import SR, cuttings, run, tone
from hypothesis import given, settings

from phonate.audio.startup import StartupBuffer


@pytest.mark.parametrize("sample_rate", [8000, 22050, 24000, 48000])
def test_160_ms_then_all_at_once_then_through(sample_rate):
    buffer = StartupBuffer(sample_rate)
    n = round(0.160 * sample_rate)
    assert len(buffer.feed(tone(n - 1))) == 0
    assert len(buffer.feed(tone(1))) == n
    assert len(buffer.feed(tone(1))) == 1
    assert len(buffer.finish()) == 0


@pytest.mark.parametrize("n", [0, 1, 3839])
def test_a_short_utterance_is_flushed(n):
    buffer = StartupBuffer(SR)
    assert len(buffer.feed(tone(n))) == 0
    np.testing.assert_array_equal(buffer.finish(), tone(n))
    assert len(buffer.finish()) == 0


def test_zero_is_off():
    buffer = StartupBuffer(SR, hold_ms=0)
    assert len(buffer.feed(tone(1))) == 1


@given(cuttings(5000))
@settings(max_examples=100, deadline=None)
def test_any_cutting_keeps_every_sample(cuts):
    np.testing.assert_array_equal(run(StartupBuffer(SR), tone(5000), cuts), tone(5000))
