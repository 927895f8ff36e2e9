"""The engine for tests keeps its own promises."""

from __future__ import annotations

import dataclasses
import math
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from phonate.engine.base import CancelToken, Engine, Reference, SynthesisRequest
from phonate.engine.scripted import (
    DEFAULT_INFO,
    Emit,
    Fail,
    Finish,
    Hang,
    ScriptedEngine,
    Wait,
    duration_of,
    frequency_of,
)
from phonate.errors import (
    EngineFailure,
    InvalidRequest,
    UnsupportedLanguage,
    UnsupportedOperation,
    VoiceNotFound,
)

CLONER = dataclasses.replace(DEFAULT_INFO, can_clone=True, can_icl=True, embedding_dim=8)


def run(engine, text="hello", token=None, **fields):
    chunks = []

    def sink(chunk):
        chunks.append(chunk)
        return True

    result = engine.synthesize(SynthesisRequest(text, **fields), sink, token or CancelToken())
    return result, chunks


def loudest_hz(samples, rate):
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return np.argmax(spectrum) * rate / len(samples)


def test_is_an_engine():
    engine: Engine = ScriptedEngine()
    assert engine.info.name == "scripted"


def test_default_answer_is_a_tone_that_tells_its_text():
    result, chunks = run(ScriptedEngine(), "tell me apart")
    audio = np.concatenate(chunks)
    assert audio.dtype == np.float32
    assert {len(chunk) for chunk in chunks} == {1920}
    assert len(audio) / 24_000 == pytest.approx(duration_of("tell me apart"))
    assert loudest_hz(audio, 24_000) == pytest.approx(frequency_of("tell me apart"), abs=2)
    assert result.finish_reason == "stop"
    assert result.n_frames == len(chunks)


def test_sixteen_parallel_answers_can_be_told_apart():
    engine = ScriptedEngine(info=dataclasses.replace(DEFAULT_INFO, max_batch=16))
    texts = [f"this is the text number {n}" for n in range(16)]
    assert len({frequency_of(text) for text in texts}) == 16
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda text: run(engine, text), texts))
    for text, (_, chunks) in zip(texts, answers, strict=True):
        heard = loudest_hz(np.concatenate(chunks), 24_000)
        assert min(texts, key=lambda t: abs(frequency_of(t) - heard)) == text
    assert len(engine.calls) == len(engine.finished) == 16
    assert engine.in_flight == 0


def test_longer_texts_take_longer():
    assert duration_of("x" * 100) > duration_of("x" * 50) > duration_of("x")


def test_script_by_text_and_by_callable():
    by_text = ScriptedEngine({"a": [Emit.silence(0.16)]})
    assert not np.concatenate(run(by_text, "a")[1]).any()
    assert np.concatenate(run(by_text, "b")[1]).any()
    by_seed = ScriptedEngine(lambda r: [Emit.nan(0.08)] if r.seed == 1 else None)
    assert np.isnan(np.concatenate(run(by_seed, seed=1)[1])).all()
    assert np.isfinite(np.concatenate(run(by_seed, seed=2)[1])).all()


@pytest.mark.parametrize("chunk_s", [None, 0.08, 0.013])
def test_audio_does_not_depend_on_the_chunking(chunk_s):
    emit = Emit(seconds=0.2, hz=440, chunk_s=chunk_s)
    np.testing.assert_array_equal(
        np.concatenate(list(emit.chunks(24_000))),
        np.concatenate(list(Emit.tone(0.2, 440).chunks(24_000))),
    )
    assert (len(list(emit.chunks(24_000))) == 1) == (chunk_s is None)


def test_own_samples_pass_unchanged():
    samples = np.linspace(-2, 2, 5000, dtype=np.float32)
    _, chunks = run(ScriptedEngine({"hello": [Emit(samples)]}))
    np.testing.assert_array_equal(np.concatenate(chunks), samples)


def test_an_endless_text_ends_at_the_budget():
    engine = ScriptedEngine({"hello": [Emit.tone(math.inf)]})
    result, chunks = run(engine, max_new_tokens=7)
    assert result.finish_reason == "length"
    assert result.n_frames == 7
    assert sum(map(len, chunks)) == 7 * 1920


def test_failure_and_finish_happen_where_the_script_says():
    boom = EngineFailure("boom")
    engine = ScriptedEngine({"bad": [Emit.tone(0.08), Fail(boom)], "short": [Finish("length")]})
    with pytest.raises(EngineFailure) as caught:
        run(engine, "bad")
    assert caught.value is boom
    assert engine.calls[0].error is boom
    assert engine.calls[0].n_chunks == 1
    assert run(engine, "short")[0].finish_reason == "length"


def test_token_stops_a_tone_and_a_wait():
    for steps in ([Emit.tone(math.inf, pace_s=0.01)], [Wait(60)]):
        engine = ScriptedEngine({"hello": steps})
        token = CancelToken()
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(run, engine, token=token)
            assert engine.wait_for_calls(1)
            token.set("test")
            assert future.result(5)[0].finish_reason == "cancelled"
        assert engine.calls[0].cancelled


def test_token_is_looked_at_before_every_chunk():
    engine, token, chunks = ScriptedEngine({"hello": [Emit.tone(1)]}), CancelToken(), []

    def sink(chunk):
        chunks.append(chunk)
        if len(chunks) == 3:
            token.set("test")
        return True

    result = engine.synthesize(SynthesisRequest("hello"), sink, token)
    assert (result.finish_reason, len(chunks)) == ("cancelled", 3)


def test_sink_that_refuses_stops_it():
    engine = ScriptedEngine({"hello": [Emit.tone(math.inf)]})
    result = engine.synthesize(SynthesisRequest("hello"), lambda _: False, CancelToken())
    assert result.finish_reason == "cancelled"
    call = engine.calls[0]
    assert (call.n_chunks, call.sink_refused, call.cancelled) == (1, True, True)


def test_hang_holds_and_is_deaf_until_released():
    hang = Hang(threading.Event())
    engine = ScriptedEngine({"hello": [hang, Emit.tone(0.08)]})
    token = CancelToken()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(run, engine, token=token)
        assert hang.reached.wait(5)
        token.set("test")
        assert not engine.wait_until_idle(0.05)
        hang.until.set()
        assert future.result(5)[0].finish_reason == "cancelled"
    assert engine.wait_until_idle()


def test_cancellable_hang_ends_with_the_token():
    token = CancelToken()
    token.set("test")
    engine = ScriptedEngine({"hello": [Hang(threading.Event(), cancellable=True)]})
    assert run(engine, token=token)[0].finish_reason == "cancelled"


def test_concurrency_and_order_are_recorded():
    first, second = Hang(threading.Event()), Hang(threading.Event())
    engine = ScriptedEngine({"1": [first], "2": [second]})
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(run, engine, "1")
        assert first.reached.wait(5)
        two = pool.submit(run, engine, "2")
        assert second.reached.wait(5)
        second.until.set()
        two.result(5)
        first.until.set()
        one.result(5)
    assert engine.texts == ["1", "2"]
    assert engine.finished == [1, 0]
    assert engine.max_in_flight == 2


def test_refuses_what_its_info_rules_out():
    engine = ScriptedEngine(info=dataclasses.replace(DEFAULT_INFO, max_text_chars=10))
    cases = [
        (VoiceNotFound, "voice", {"speaker": "nobody"}),
        (UnsupportedLanguage, "language", {"language": "klingon"}),
        (UnsupportedOperation, "instructions", {"instructions": "whisper"}),
        (UnsupportedOperation, "voice", {"reference": Reference(np.zeros(8, np.float32))}),
        (InvalidRequest, "input", {"text": "eleven char"}),
    ]
    for kind, param, fields in cases:
        with pytest.raises(kind) as caught:
            run(engine, **fields)
        assert caught.value.param == param
    designer = ScriptedEngine(
        info=dataclasses.replace(DEFAULT_INFO, can_instruct=True, needs_instructions=True)
    )
    with pytest.raises(InvalidRequest) as caught:
        run(designer)
    assert caught.value.param == "instructions"
    run(designer, instructions="a calm voice")
    with pytest.raises(InvalidRequest):
        run(ScriptedEngine(info=CLONER), speaker="tone", reference=Reference(np.zeros(8)))


def test_extract_voice_is_deterministic():
    engine = ScriptedEngine(info=CLONER)
    audio = np.sin(np.arange(48_000, dtype=np.float32))
    one, two = engine.extract_voice(audio, "hi"), engine.extract_voice(audio.copy(), "hi")
    np.testing.assert_array_equal(one.embedding, two.embedding)
    np.testing.assert_array_equal(one.codes, two.codes)
    assert one.embedding.shape == (8,)
    assert one.codes.shape == (25, 16)
    assert one.codes.min() >= 0
    assert one.codes.max() < 2048
    assert one.text == "hi"
    other = engine.extract_voice(audio[:-1], None)
    assert other.codes is None
    assert not np.array_equal(other.embedding, one.embedding)
    assert engine.extracted == [(48_000, "hi"), (48_000, "hi"), (47_999, None)]
    with pytest.raises(UnsupportedOperation):
        ScriptedEngine().extract_voice(audio, None)


def test_warm_up_and_close():
    engine = ScriptedEngine(warm_up=[Wait(0), Fail(EngineFailure("cold"))])
    with pytest.raises(EngineFailure, match="cold"):
        engine.warm_up()
    assert engine.n_warm_ups == 1
    engine.close()
    engine.close()
    with pytest.raises(EngineFailure, match="closed"):
        run(engine)
