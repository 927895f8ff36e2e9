"""vLLM-Omni's events over the same session."""

from __future__ import annotations

import io
import wave
from typing import Any

import pytest
from session_driver import Driver, pcm

from phonate.errors import EngineFailure, VoiceNotFound
from phonate.speech import vllm_session
from phonate.speech.session_events import Config, Plan
from phonate.speech.vllm_session import VllmSession

FIRST = "This is the first sentence. "
SECOND = "And this is the second one. "


def vllm(**config: Any) -> Driver:
    d = Driver(lambda c: Plan(what=c.voice))
    d.machine = VllmSession(d.session)
    d.send("session.config", **config)
    assert d.take() == []
    return d


def ask(d: Driver, text: str) -> None:
    d.send("input.text", text=text)
    d.send("input.done")


def test_an_utterance_is_one_wav_file_by_default() -> None:
    d = vllm(voice="heart")
    d.send("input.text", text=FIRST)
    assert d.started == []
    ask(d, SECOND)
    d.speak(100)
    assert d.take() == ["audio.start"]
    d.speak(200)
    start = d.types
    assert start == ["pcm", "audio.done", "session.done"]
    sound = d.out[0]
    with wave.open(io.BytesIO(sound)) as f:
        assert (f.getframerate(), f.getnchannels(), f.getsampwidth()) == (24000, 1, 2)
        assert f.getnframes() == (100 + 300 + 200) * 24
    assert d.last("audio.done") == {
        "type": "audio.done", "utterance_index": 0, "sentence_index": 0,
        "total_bytes": len(sound), "error": False,
    }  # fmt: skip
    assert d.last("session.done") == {
        "type": "session.done", "utterance_index": 0, "total_sentences": 1,
    }  # fmt: skip


def test_audio_start_says_what_comes() -> None:
    d = vllm(stream_audio=True)
    ask(d, FIRST + SECOND)
    d.audio(100)
    assert d.last("audio.start") == {
        "type": "audio.start", "utterance_index": 0, "sentence_index": 0,
        "sentence_text": FIRST + SECOND, "format": "pcm", "sample_rate": 24000, "channels": 1,
    }  # fmt: skip
    assert d.heard_ms == 100


def test_sentences_are_spoken_as_they_come() -> None:
    d = vllm(stream_audio=True, split_granularity="sentence")
    d.send("input.text", text="Good morning, everybody. " + "Half a sent")
    assert [s.text for s in d.started] == ["Good morning, everybody."]
    d.speak(100)
    d.send("input.text", text="ence. ")
    d.speak(200)
    d.send("input.done")
    assert d.types == ["audio.start", "pcm", "audio.done"] * 2 + ["session.done"]
    assert [e["sentence_index"] for e in d.of("audio.start")] == [0, 1]
    assert [e["sentence_text"] for e in d.of("audio.start")] == [
        "Good morning, everybody. ", "Half a sentence. ",
    ]  # fmt: skip
    assert [e["total_bytes"] for e in d.of("audio.done")] == [4800, 9600]
    assert d.last("session.done")["total_sentences"] == 2
    assert d.heard_ms == 300


def test_clauses() -> None:
    d = vllm(stream_audio=True, split_granularity="clause")
    ask(d, "Good morning, everybody, and welcome, all of you.")
    for _ in range(4):
        d.speak()
    assert d.last("session.done")["total_sentences"] == 4


@pytest.mark.parametrize("fmt", ["wav", "pcm", "WAV", None])
def test_formats(fmt: str | None) -> None:
    d = vllm(response_format=fmt)
    ask(d, FIRST)
    d.speak(100)
    start = d.last("audio.start")
    assert start["format"] == (fmt or "wav").lower()
    assert next(o for o in d.out if isinstance(o, bytes)).endswith(pcm(100))
    assert d.of("audio.done")[0]["total_bytes"] == (4800 if fmt == "pcm" else 4844)


def test_the_connection_serves_many_utterances() -> None:
    d = vllm(stream_audio=True)
    for n in range(3):
        ask(d, FIRST)
        d.speak()
        assert d.last("session.done")["utterance_index"] == n
    assert [e["utterance_index"] for e in d.of("audio.start")] == [0, 1, 2]
    d.send("session.close")
    assert d.closed.code == 1000


def test_utterances_may_be_sent_ahead() -> None:
    d = vllm(stream_audio=True)
    ask(d, FIRST)
    ask(d, SECOND)
    d.speak()
    d.speak()
    assert [e["sentence_text"] for e in d.of("audio.start")] == [FIRST, SECOND]
    assert [e["utterance_index"] for e in d.of("audio.start")] == [0, 1]


@pytest.mark.parametrize("granularity", ["none", "sentence", "clause"])
def test_an_empty_utterance_is_done_at_once(granularity: str) -> None:
    d = vllm(split_granularity=granularity)
    d.send("input.done")
    ask(d, "")
    ask(d, "👍")
    assert d.types == ["session.done"] * 3
    assert [e["utterance_index"] for e in d.events] == [0, 1, 2]
    assert {e["total_sentences"] for e in d.events} == {0}


def test_the_config_stays_and_can_be_replaced() -> None:
    d = vllm(voice="a", stream_audio=True)
    ask(d, FIRST)
    d.speak()
    d.send("session.config", voice="b", stream_audio=True)
    ask(d, SECOND)
    assert [s.plan for s in d.started] == ["a", "b"]


@pytest.mark.parametrize("granularity", ["none", "sentence"])
def test_a_config_within_an_utterance_is_an_error_and_no_end(granularity: str) -> None:
    d = vllm(split_granularity=granularity, stream_audio=True)
    d.send("input.text", text="Half a ")
    d.send("session.config")
    assert d.take() == ["error"]
    ask(d, "sentence.")
    d.speak()
    assert d.types[-1] == "session.done"
    assert d.of("audio.start")[0]["sentence_text"] == "Half a sentence."


@pytest.mark.parametrize(
    "frame",
    ["nonsense", "[]", "{}", '{"type":"shout"}', '{"type":"config"}', '{"type":"input.text"}',
     '{"type":"input.text","text":5}', '{"type":"session.config","speed":9}',
     '{"type":"session.config","response_format":"mp3"}',
     '{"type":"session.config","word_timestamps":true}',
     '{"type":"session.config","split_granularity":"word"}'],
    ids=lambda frame: frame[:60],
)  # fmt: skip
def test_errors_leave_the_connection_open(frame: str) -> None:
    d = vllm(stream_audio=True)
    d.raw(frame)
    assert d.types == ["error"]
    assert set(d.last("error")) == {"type", "message"}
    assert d.last("error")["message"]
    ask(d, FIRST)
    d.speak()
    assert d.types[-1] == "session.done"


@pytest.mark.parametrize("frame", ["nonsense", '{"type":"input.text","text":"x"}'])
def test_errors_before_the_config_close(frame: str) -> None:
    d = Driver()
    d.machine = VllmSession(d.session)
    d.raw(frame)
    assert d.types == ["error"]
    assert d.closed.code == 1008


def test_an_unknown_voice_in_the_first_config_closes() -> None:
    def resolve(config: Config) -> Plan:
        raise VoiceNotFound("x", ["heart"])

    d = Driver(resolve)
    d.machine = VllmSession(d.session)
    d.send("session.config", voice="x")
    assert "heart" in d.last("error")["message"]
    assert d.closed.code == 1008


def test_a_failed_unit_is_told_and_paired() -> None:
    d = vllm(stream_audio=True, split_granularity="sentence")
    ask(d, FIRST + SECOND)
    d.audio(100)
    d.failed(EngineFailure("It broke."))
    d.speak()
    assert d.types == [
        "audio.start", "pcm", "error", "audio.done",
        "audio.start", "pcm", "audio.done", "session.done",
    ]  # fmt: skip
    assert "utterance 0, sentence 0" in d.last("error")["message"]
    assert d.last("error")["partial_audio"] is True
    assert [e["error"] for e in d.of("audio.done")] == [True, False]


def test_a_silent_unit_is_paired_too() -> None:
    d = vllm(stream_audio=True, split_granularity="sentence")
    ask(d, FIRST)
    d.done()
    assert d.types == ["audio.start", "error", "audio.done", "session.done"]


def test_close_speaks_what_was_asked_for_and_drops_the_rest() -> None:
    d = vllm(stream_audio=True, split_granularity="sentence")
    ask(d, FIRST)
    d.send("input.text", text=SECOND)
    d.send("session.close")
    assert d.closed is None
    d.speak()
    assert d.types[-1] == "session.done"
    assert len(d.started) == 1
    assert d.closed.code == 1000


def test_close_drops_text_that_was_only_buffered() -> None:
    d = vllm()
    d.send("input.text", text=FIRST)
    d.send("session.close")
    assert d.started == []
    assert d.closed.code == 1000


def test_a_client_that_only_makes_errors_without_reading_is_closed() -> None:
    d = vllm()
    d.reading = False
    for _ in range(400):
        d.raw("nonsense")
    d.reading = True
    d.settle()
    assert d.closed.code == 1013


def test_a_file_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_session, "MAX_FILE_BYTES", 10_000)
    d = vllm()
    ask(d, FIRST)
    d.audio(1000)
    assert "stream_audio" in d.last("error")["message"]
    assert d.closed.code == 1008
    assert d.cancelled == ["session_failed"]


def test_a_vanished_client() -> None:
    d = vllm()
    ask(d, FIRST)
    d.machine.disconnected(d.now)
    d.settle()
    assert d.cancelled == ["client_gone"]
