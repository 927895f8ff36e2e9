"""The built-in voice in a process of its own keeps its promises: its own tests, on the proxy, and
the same samples as in this process."""

from __future__ import annotations

import numpy as np
import pytest
from isolated_engines import isolated
from test_builtin_engine import (  # noqa: F401
    speak,
    test_a_refusing_sink_is_a_cancel_and_leaves_no_trace,
    test_a_second_sentence_adds_its_length,
    test_an_error_of_the_sink_is_not_ours,
    test_another_script_is_a_400_with_a_way_out,
    test_cancel_from_another_thread_stops_it,
    test_cancelled_before_it_starts_it_says_nothing,
    test_chunks_are_small_enough_to_send,
    test_is_an_engine,
    test_mixed_text_is_spoken_in_part_and_the_rest_told,
    test_nothing_to_speak_is_a_clear_400,
    test_refuses_what_it_cannot,
    test_same_seed_same_audio_bit_for_bit,
    test_speaks,
    test_the_shortest_texts_are_short_and_audible,
    test_the_token_budget_is_kept,
    test_threads_do_not_disturb_each_other,
    test_too_long_is_refused_at_once,
)

from phonate.doctor import examine
from phonate.engine.base import CancelToken, SynthesisRequest
from phonate.engine.builtin.engine import BuiltinEngine
from phonate.engine.choose import create_engine
from phonate.engine.isolated.supervisor import Timing
from phonate.settings import load


@pytest.fixture(scope="module")
def engine():
    engine = isolated("builtin", Timing())  # its first words hold the interpreter for a while
    engine.warm_up()
    yield engine
    engine.close()


def chunks_of(engine, text, seed):
    chunks = []
    request = SynthesisRequest(text, seed=seed)
    engine.synthesize(request, lambda c: chunks.append(c) or True, CancelToken())
    return chunks


def test_chunk_by_chunk_the_same_as_in_this_process(engine):
    inside = BuiltinEngine(pico=False)
    assert engine.info == inside.info
    text = "The same seed, the same chunks. In two sentences, on both sides."
    for ours, theirs in zip(chunks_of(inside, text, 7), chunks_of(engine, text, 7), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert theirs.dtype == ours.dtype
        assert theirs.flags.writeable


def test_the_setting_makes_it_and_knows_what_is_unspoken():
    engine = create_engine(load({"isolate_engine": True}, {}).settings)
    try:
        assert engine.info.name == "builtin"
        assert engine.unspoken("Hello 世界", None) == "世界"
        assert engine.vitals.up
    finally:
        engine.close()


def test_the_doctor_tells_where_the_engine_lives_and_tries_it_there():
    found = {f.what: f for f in examine(load({"isolate_engine": True}, {}).settings)}
    assert "process of its own" in found["the engine's place"].state
    assert found["a trial sentence"].ok
    assert "--isolate-engine" in next(examine_place(load({}, {}).settings)).state


def examine_place(settings):
    return (f for f in examine(settings) if f.what == "the engine's place")
