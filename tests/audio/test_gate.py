import numpy as np
import pytest
from hearing import SR, cuttings, run, tone
from hypothesis import given, settings
from hypothesis import strategies as st

from phonate.audio.gate import SilenceGate


def constant(n, value):
    return np.full(n, value, np.int16)


def test_nothing_before_a_loud_block_then_everything():
    gate = SilenceGate(SR)
    assert len(gate.feed(constant(24000, 79))) == 0
    assert not gate.audible
    out = gate.feed(constant(480, -80))
    assert gate.audible
    np.testing.assert_array_equal(out, np.concatenate((constant(24000, 79), constant(480, -80))))
    assert len(gate.feed(constant(7, 0))) == 7
    assert len(gate.finish()) == 0


@pytest.mark.parametrize("n", [0, 1, 479, 480, 100_000])
@pytest.mark.parametrize("value", [0, 5, -79])
def test_never_audible(n, value):
    gate = SilenceGate(SR)
    assert len(run(gate, constant(n, value))) == 0
    assert not gate.audible


def test_one_loud_sample_is_not_sound():
    x = constant(24000, 0)
    x[777] = 32767
    assert len(run(SilenceGate(SR), x)) == 0
    x[778:800] = 500
    assert len(run(SilenceGate(SR), x)) == 24000


def test_the_loudest_negative_counts_as_loud():
    gate = SilenceGate(SR)
    assert len(gate.feed(constant(480, -32768))) == 480


def test_a_short_loud_end_opens_at_the_end():
    gate = SilenceGate(SR)
    assert len(gate.feed(tone(300))) == 0
    assert len(gate.finish()) == 300
    assert gate.audible
    # Missing samples count as zero: 10 samples of 3000 are 62 per sample of a block.
    assert len(run(SilenceGate(SR), constant(10, 3000))) == 0
    assert len(run(SilenceGate(SR), constant(13, 3000))) == 13


def test_threshold_zero_is_no_gate():
    gate = SilenceGate(SR, threshold=0)
    assert gate.audible
    assert len(gate.feed(constant(3, 0))) == 3


@pytest.mark.parametrize("sample_rate", [8000, 22050, 48000])
def test_a_block_is_20_ms_at_any_rate(sample_rate):
    gate = SilenceGate(sample_rate)
    n = round(sample_rate * 0.02)
    assert len(gate.feed(constant(n - 1, 90))) == 0
    assert len(gate.feed(constant(1, 90))) == n


@given(cuttings(3000), st.integers(0, 3000), st.integers(0, 160))
@settings(max_examples=150, deadline=None)
def test_any_cutting(cuts, quiet, value):
    x = constant(3000, value)
    x[:quiet] = 3
    cut, whole = SilenceGate(SR), SilenceGate(SR)
    np.testing.assert_array_equal(run(cut, x, cuts), run(whole, x))
    assert cut.audible == whole.audible
