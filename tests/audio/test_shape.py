import numpy as np
import pytest
from hearing import SR, cuttings, run, voiced
from hypothesis import given, settings
from hypothesis import strategies as st

from phonate.audio.pcm import to_floats, to_pcm
from phonate.audio.resample import RATES
from phonate.audio.shape import FragmentShaper, Sound, UtteranceShaper

RAW = Sound(trim_silence=False, fade_out_ms=0, startup_ms=0, gate_threshold=0)


def fragment(n=30_000, silence=5000, seed=0):
    return np.concatenate((np.zeros(silence, np.float32), to_floats(voiced(n, seed=seed))))


def test_a_fragment_is_trimmed_faded_and_made_pcm():
    out = run(FragmentShaper(SR), fragment())
    assert out.dtype == np.int16
    assert len(out) <= 30_000 + 361 + 120
    assert out[0] == out[-1] == 0
    expected = to_pcm(fragment())
    np.testing.assert_array_equal(out[600:-360], expected[-len(out) :][600:-360])


def test_a_silent_fragment_keeps_its_length():
    quiet = np.full(30_000, 0.001, np.float32)
    np.testing.assert_array_equal(run(FragmentShaper(SR), quiet)[:-360], to_pcm(quiet)[:-360])
    assert len(run(FragmentShaper(SR), quiet)) == 30_000


def test_fragments_join_without_a_click():
    joined = np.concatenate([run(FragmentShaper(SR), fragment(seed=s)) for s in range(3)]).astype(
        int
    )
    inside = np.abs(np.diff(run(FragmentShaper(SR), fragment()).astype(int))).max()
    assert np.abs(np.diff(joined)).max() <= inside * 1.3


def test_everything_off_is_only_the_pcm_rule():
    x = fragment()
    x[7], x[8], x[9] = np.nan, np.inf, -9.0
    np.testing.assert_array_equal(run(FragmentShaper(SR, RAW), x), to_pcm(x))
    pcm = to_pcm(x)
    np.testing.assert_array_equal(run(UtteranceShaper(SR, sound=RAW), pcm), pcm)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_hostile_floats_give_pcm(bad):
    for x in (np.full(40_000, bad, np.float32), np.array([bad], np.float32)):
        out = run(FragmentShaper(SR), x, [1, 1, 500])
        assert out.dtype == np.int16


@given(cuttings(3000), st.integers(0, 3000))
@settings(max_examples=60, deadline=None)
def test_any_cutting_of_a_fragment(cuts, silence):
    x = fragment(3000 - silence, silence)
    sound = Sound(fade_out_after_ms=30)
    np.testing.assert_array_equal(
        run(FragmentShaper(SR, sound), x, cuts), run(FragmentShaper(SR, sound), x)
    )


@given(cuttings(9000), st.sampled_from((0.5, 1.0, 2.0)), st.sampled_from(RATES))
@settings(max_examples=30, deadline=None)
def test_any_cutting_of_an_utterance(cuts, speed, rate):
    x = voiced(9000)
    make = lambda: UtteranceShaper(SR, out_rate=rate, speed=speed)  # noqa: E731
    whole = run(make(), x)
    np.testing.assert_array_equal(run(make(), x, cuts), whole)
    assert abs(len(whole) / rate - 9000 / SR / speed) < 0.030


def test_silence_never_leaves_an_utterance():
    for speed in (1.0, 0.5, 4.0):
        shaper = UtteranceShaper(SR, speed=speed)
        assert len(run(shaper, np.full(50_000, 20, np.int16), range(0, 50_000, 999))) == 0
        assert not shaper.audible


@pytest.mark.parametrize("speed", [0.5, 1.0, 4.0])
def test_the_first_block_is_what_startup_says(speed):
    shaper = UtteranceShaper(SR, speed=speed)
    outs = [shaper.feed(piece) for piece in np.split(voiced(96_000), 400)]
    first = next(out for out in outs if len(out))
    assert len(first) >= 0.160 * SR
    assert shaper.audible
