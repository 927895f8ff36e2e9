"""Trimming, fading, pausing."""

from __future__ import annotations

import numpy as np
import pytest

from phonate.engine.builtin.joins import block_levels, faded_out, is_audible, join_ready

RATE = 24_000


def speech(before_s, speech_s, after_s):
    tone = 0.2 * np.sin(np.arange(round(speech_s * RATE)) * 0.1)
    return np.concatenate(
        [np.zeros(round(before_s * RATE)), tone, np.zeros(round(after_s * RATE))]
    ).astype(np.float32)


@pytest.mark.parametrize("pause_s", [0.1, 0.2, 0.42, 0.7])
def test_the_pause_is_what_was_asked_whatever_the_voice_left(pause_s):
    for before_s, after_s in ((0.3, 0.46), (0.05, 0.1), (0.031, 0.061)):
        ready = join_ready(speech(before_s, 0.5, after_s), pause_s, RATE)
        two = np.concatenate([ready, ready])
        quiet = np.flatnonzero(np.abs(two[RATE // 4 : -RATE // 8]) < 1e-4)
        longest = max(np.split(quiet, np.flatnonzero(np.diff(quiet) > 1) + 1), key=len)
        assert len(longest) / RATE == pytest.approx(pause_s, abs=0.012)


def test_speech_is_kept_whole_and_edges_are_zero():
    audio = speech(0.3, 0.5, 0.4)
    ready = join_ready(audio, 0.2, RATE)
    assert np.count_nonzero(np.abs(ready) > 1e-4) == np.count_nonzero(np.abs(audio) > 1e-4)
    assert ready[0] == 0
    assert ready[-1] == 0


def test_no_click_where_speech_fills_the_piece():
    ready = join_ready(np.full(RATE // 2, 0.5, np.float32), 0.1, RATE)
    two = np.concatenate([ready, ready])
    assert np.abs(np.diff(two)).max() < 0.01


def test_silence_and_nothing_give_nothing():
    assert not join_ready(np.zeros(RATE, np.float32), 0.4, RATE).size
    assert not join_ready(np.zeros(0, np.float32), 0.4, RATE).size
    assert not is_audible(np.zeros(0, np.float32), RATE)


def test_bad_samples_do_not_spread():
    audio = speech(0, 0.5, 0)
    audio[100:200] = np.nan
    audio[300] = np.inf
    assert np.isfinite(join_ready(audio, 0.1, RATE)).all()


def test_audible_is_what_the_gate_calls_audible():
    assert is_audible(np.full(480, 80.5 / 32767, np.float32), RATE)
    assert not is_audible(np.full(480, 79 / 32767, np.float32), RATE)


def test_fade_leaves_its_input_alone():
    audio = np.ones(1000, np.float32)
    assert faded_out(audio, RATE)[-1] == 0
    assert faded_out(audio, RATE)[:-120].min() == 1
    assert audio.min() == 1
    assert block_levels(audio, RATE, 0.005).shape == (9,)
