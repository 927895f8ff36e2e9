import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from phonate.audio import pcm


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (0.0, 0),
        (-0.0, 0),
        (1.0, 32767),
        (-1.0, -32767),
        (1.5, 32767),
        (-7.0, -32767),
        (float("nan"), 0),
        (float("inf"), 32767),
        (float("-inf"), -32767),
        (3.4e38, 32767),
        (1e-45, 0),
        (0.4 / 32767, 0),
        (0.6 / 32767, 1),
        (-0.6 / 32767, -1),
    ],
)
def test_one_sample(x, expected):
    assert pcm.to_pcm(np.array([x], np.float32)).tolist() == [expected]


@given(hnp.arrays(np.float32, st.integers(0, 50), elements=st.floats(width=32)))
def test_any_float_is_closest_in_range_and_the_input_is_untouched(x):
    before = x.copy()
    out = pcm.to_pcm(x)
    assert out.dtype == np.int16
    assert out.shape == x.shape
    np.testing.assert_array_equal(x, before)
    wanted = np.clip(np.where(np.isnan(x), 0, x.astype(np.float64)), -1, 1) * 32767
    assert np.all(np.abs(out - wanted) <= 0.501)


def test_other_float_types_are_taken():
    assert pcm.to_pcm(np.array([0.5, 1e300, np.nan])).tolist() == [16384, 32767, 0]


def test_back_and_forth_is_exact():
    every = np.arange(-32767, 32768).astype(np.int16)
    np.testing.assert_array_equal(pcm.to_pcm(pcm.to_floats(every)), every)
    assert pcm.to_floats(np.array([-32768], np.int16)).tolist() == [-1.0]


def test_finite_keeps_what_is_too_loud():
    x = np.array([np.nan, np.inf, -np.inf, 2.5], np.float32)
    assert pcm.finite(x).tolist() == [0.0, 1.0, -1.0, 2.5]


def test_bytes_are_little_endian_on_any_machine():
    assert pcm.to_bytes(np.array([1, -2], np.int16)) == b"\x01\x00\xfe\xff"
    assert pcm.to_bytes(np.array([1, -2], ">i2")) == b"\x01\x00\xfe\xff"
