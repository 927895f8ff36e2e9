"""The scripted engine keeps the same promises behind the wire: its own tests, through the proxy."""

from __future__ import annotations

import pytest
import test_scripted
from isolated_engines import in_thread
from test_scripted import (  # noqa: F401
    test_an_endless_text_ends_at_the_budget,
    test_audio_does_not_depend_on_the_chunking,
    test_cancellable_hang_ends_with_the_token,
    test_concurrency_and_order_are_recorded,
    test_default_answer_is_a_tone_that_tells_its_text,
    test_extract_voice_is_deterministic,
    test_hang_holds_and_is_deaf_until_released,
    test_is_an_engine,
    test_longer_texts_take_longer,
    test_own_samples_pass_unchanged,
    test_refuses_what_its_info_rules_out,
    test_script_by_text_and_by_callable,
    test_sink_that_refuses_stops_it,
    test_sixteen_parallel_answers_can_be_told_apart,
    test_token_is_looked_at_before_every_chunk,
    test_token_stops_a_tone_and_a_wait,
    test_warm_up_and_close,
)

from phonate.engine.scripted import Emit, Fail, Finish, ScriptedEngine
from phonate.errors import EngineFailure


@pytest.fixture(autouse=True)
def through_the_proxy(monkeypatch):
    proxies = []

    class Proxied:
        """Calls go through the wire, what happened is looked up in the engine inside."""

        def __init__(self, *args, **kwargs):
            self._inner = ScriptedEngine(*args, **kwargs)
            self._proxy = in_thread(self._inner)
            proxies.append(self._proxy)

        def __getattr__(self, name):
            through = name in ("info", "synthesize", "extract_voice", "warm_up", "close")
            return getattr(self._proxy if through else self._inner, name)

    monkeypatch.setattr(test_scripted, "ScriptedEngine", Proxied)
    yield Proxied
    for proxy in proxies:
        proxy.close()


def test_the_tests_really_go_through_the_proxy(through_the_proxy):
    engine = test_scripted.ScriptedEngine()
    test_scripted.run(engine)
    assert engine.calls[0].thread == "phonate-child"


def test_failure_and_finish_come_over_the_wire(through_the_proxy):
    boom = EngineFailure("boom", param="input", code="odd")
    engine = through_the_proxy({"bad": [Emit.tone(0.08), Fail(boom)], "short": [Finish("length")]})
    with pytest.raises(EngineFailure, match="boom") as caught:
        test_scripted.run(engine, "bad")
    assert type(caught.value) is EngineFailure
    assert (caught.value.param, caught.value.code) == ("input", "odd")
    assert test_scripted.run(engine, "short")[0].finish_reason == "length"
