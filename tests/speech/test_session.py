"""The session machine: the events of docs/PROTOCOL.md, their order, and every end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from session_driver import Driver, opened

from phonate.errors import (
    Busy,
    EngineFailure,
    InvalidRequest,
    NotReady,
    OutputError,
    RateLimited,
    Timeout,
    UnsupportedLanguage,
    VoiceNotFound,
)
from phonate.speech.session_events import AUDIO, CLIENT_EVENTS, Config, Plan
from phonate.speech.session_moves import DEFER, MOVES, State

FIRST = "This is the first sentence. "
SECOND = "And this is the second one. "


# Opening ------------------------------------------------------------------------------------------


def test_config_is_answered_with_ready() -> None:
    d = Driver()
    d.config(voice="heart", response_format="pcm", fragment_lookahead_words=2)
    ready = d.last("ready")
    assert ready["audio"] == AUDIO
    assert ready["limits"]["max_text_bytes"] == 2**20
    assert (ready["session_id"], ready["request_id"]) == ("s1", "r1")


def test_the_client_may_name_the_session() -> None:
    d = Driver()
    d.config(session_id="mine-1")
    assert d.last("ready")["session_id"] == "mine-1"


@pytest.mark.parametrize("value", ["", "a b", "x" * 129, "ä", "a/b", 7, True, []])
def test_a_malformed_session_id_is_refused(value: object) -> None:
    d = Driver()
    d.config(session_id=value)
    assert d.last("error")["error"]["param"] == "session_id"


@pytest.mark.parametrize("event", sorted(set(CLIENT_EVENTS) - {"config", "cancel", "end"}))
def test_before_the_config_nothing_else(event: str) -> None:
    d = Driver()
    d.send(event, text="x", segment_id=1)
    error = d.last("error")
    assert error["error"]["code"] == "unexpected_event"
    assert "config" in error["error"]["message"]
    assert error["message"] == error["error"]["message"]
    assert (d.closed.code, d.state) == (1008, State.CLOSED)


def test_end_without_config_is_done_with_nothing() -> None:
    d = Driver()
    d.send("end")
    assert d.types == ["done"]
    assert d.last("done")["spoken_ms"] == 0
    assert d.closed.code == 1000


def test_cancel_without_config() -> None:
    d = Driver()
    d.send("cancel")
    assert d.types == ["cancelled"]
    assert d.closed.code == 1000


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("response_format", "mp3"),
        ("response_format", 5),
        ("voice", 5),
        ("speed", 9),
        ("temperature", True),
        ("top_p", 0),
        ("clone_mode", "icl"),
        ("instructions", "x" * 501),
        ("fragment_lookahead_words", -1),
        ("fragment_lookahead_words", 51),
        ("fragment_lookahead_words", 1.5),
        ("comma_silence_duration", -0.1),
        ("sentence_silence_duration", 11),
        ("sentence_silence_duration", "0.3"),
        ("language", 5),
    ],
)
def test_a_wrong_field_in_the_config_is_named(field: str, value: object) -> None:
    d = Driver()
    d.config(**{field: value})
    assert d.types == ["error"]
    assert d.last("error")["error"]["param"] == field
    assert d.last("error")["error"]["type"] == "invalid_request_error"
    assert d.last("error")["error"]["message"].startswith(field)
    assert d.closed.code == 1008


def test_null_in_the_config_is_absent() -> None:
    d = Driver()
    d.config(**dict.fromkeys(Config.model_fields))
    assert d.types == ["ready"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (VoiceNotFound("x", ["heart"]), 1008),
        (UnsupportedLanguage("No.", param="language"), 1008),
        (NotReady("Starting."), 1013),
        (EngineFailure("Dead."), 1011),
    ],
)
def test_a_config_that_the_server_refuses(error: Any, code: int) -> None:
    def resolve(config: Config) -> Plan:
        raise error

    d = Driver(resolve)
    d.config(voice="x")
    assert d.last("error")["error"]["message"] == error.message
    assert d.last("error")["error"]["param"] == error.param
    assert d.closed.code == code


def test_ready_tells_what_was_chosen() -> None:
    d = Driver(lambda config: Plan(about={"voice": "heart"}))
    d.config()
    assert d.last("ready")["voice"] == "heart"


# Speaking -----------------------------------------------------------------------------------------


def test_one_sentence_from_text_to_done() -> None:
    d = opened()
    d.text("This is one")
    assert d.started == []
    d.now += 0.5
    d.text(" sentence. ")
    assert [(s.text, s.plan) for s in d.started] == [("This is one sentence.", "heart")]
    d.now += 0.25
    d.audio(100)
    d.audio(60)
    d.done()
    d.send("end")
    assert d.types == ["fragment_ready", "first_pcm_ready", "pcm", "fragment_done", "done"]
    ready, first, finished, done = d.events
    assert ready["timings"] == {"first_text_to_fragment_ms": 500.0}
    assert ready["text"] == "This is one sentence. "
    assert first["timings"] == {"synthesis_to_first_pcm_ms": 250.0}
    assert first["audio"] == AUDIO
    assert (finished["start_ms"], finished["end_ms"]) == (0, 160)
    assert finished["finish_reason"] == "stop"
    assert (done["spoken_ms"], done["spoken_chars"]) == (160, len("This is one sentence. "))
    assert d.closed.code == 1000
    assert {e["session_id"] for e in d.events} == {"s1"}
    assert {e["request_id"] for e in d.events} == {"r1"}


def test_the_clock_of_the_first_pcm_starts_when_the_engine_does() -> None:
    d = opened()
    d.text(FIRST)
    d.now += 5
    d.session.engine_started(0, d.now)
    d.now += 0.1
    d.audio()
    assert d.last("first_pcm_ready")["timings"] == {"synthesis_to_first_pcm_ms": 100.0}


def test_the_next_fragment_starts_when_the_engine_is_done() -> None:
    d = opened()
    d.text(FIRST + SECOND)
    assert [s.fragment for s in d.started] == [0]
    d.reading = False
    d.audio()
    d.done()
    assert [s.fragment for s in d.started] == [0, 1]
    d.audio()
    d.done()
    d.reading = True
    d.send("end")
    assert d.types[:4] == ["fragment_ready", "first_pcm_ready", "pcm", "fragment_done"]
    assert [e["text"] for e in d.of("fragment_done")] == [FIRST, SECOND]


def test_pauses_go_between_fragments_and_not_after_the_last() -> None:
    d = opened()
    d.text("Good morning, everybody. " + SECOND)
    for _ in range(3):
        d.speak(100)
    d.send("end")
    spans = [(e["text"], e["start_ms"], e["end_ms"]) for e in d.of("fragment_done")]
    assert spans == [
        ("Good morning, ", 0, 100),
        ("everybody. ", 250, 350),
        (SECOND, 650, 750),
    ]
    assert d.heard_ms == 750 == d.last("done")["spoken_ms"]


def test_pauses_are_silence() -> None:
    d = opened()
    d.text(FIRST + SECOND)
    d.audio(100)
    d.done()
    d.audio(100, byte=b"\2")
    sound = b"".join(o for o in d.out if isinstance(o, bytes))
    assert sound == b"\1" * 4800 + bytes(14400) + b"\2" * 4800


def test_pauses_can_be_chosen() -> None:
    d = Driver()
    d.config(comma_silence_duration=0.5, sentence_silence_duration=0)
    d.text("Good morning, everybody. " + SECOND)
    for _ in range(3):
        d.speak(100)
    assert [e["start_ms"] for e in d.of("fragment_done")] == [0, 600, 700]


def test_a_fragment_without_an_end_mark_has_no_pause_after_it() -> None:
    d = opened()
    d.say("no end mark")
    d.speak(100)
    d.say("and more of it")
    d.speak(100)
    assert d.of("fragment_done")[1]["start_ms"] == 100


def test_after_a_flush_a_silent_client_is_not_kept_waiting_by_a_pause() -> None:
    d = opened()
    d.say("This is it.")
    d.speak(100)
    d.now += 3
    d.say("And that too.")
    d.speak(100)
    assert d.of("fragment_done")[1]["start_ms"] == 100
    d.say("Now at once.")
    d.speak(100)
    assert d.of("fragment_done")[2]["start_ms"] == 500


def test_the_first_fragment_after_silence_is_marked() -> None:
    d = opened()
    d.text(FIRST + SECOND)
    d.speak(1000)
    d.speak(1000)
    d.now += 5
    d.text(FIRST)
    assert [s.first for s in d.started] == [True, False, True]


def test_empty_text_and_odd_pieces_are_fine() -> None:
    d = opened()
    for char in ["", *FIRST, ""]:
        d.text(char)
    assert [s.text for s in d.started] == [FIRST.strip()]


def test_an_emoji_cut_in_two_is_whole_again() -> None:
    d = opened()
    d.raw('{"type":"text","text":"I like this one \\ud83d"}')
    d.raw('{"type":"text","text":"\\ude00 so much."}')
    d.send("flush")
    assert d.last("fragment_ready")["text"] == "I like this one 😀 so much."


def test_half_an_emoji_does_no_harm() -> None:
    d = opened()
    d.raw('{"type":"text","text":"I like this one \\ud83d"}')
    d.send("flush")
    assert d.last("fragment_ready")["text"] == "I like this one \N{REPLACEMENT CHARACTER}"


def test_text_without_letters_is_not_spoken_but_belongs_to_the_next_fragment() -> None:
    d = opened()
    d.say("👍")
    d.say("...")
    assert d.started == []
    d.say("Well done.")
    assert d.started[0].text == "Well done."
    assert d.last("fragment_ready")["text"] == "👍...Well done."


def test_only_emoji_is_done_without_audio() -> None:
    d = opened()
    d.text("👍")
    d.send("end")
    assert d.types == ["done"]


def test_end_speaks_what_is_held() -> None:
    d = opened()
    d.text("no end mark at all")
    d.send("end")
    assert d.state is State.ENDING
    d.speak()
    assert d.types[-2:] == ["fragment_done", "done"]


def test_done_waits_for_the_last_audio_to_be_sent() -> None:
    d = opened()
    d.text(FIRST)
    d.send("end")
    d.reading = False
    d.speak(1000)
    assert d.state is State.ENDING
    d.reading = True
    d.settle()
    assert d.state is State.CLOSED
    assert d.last("done")["spoken_ms"] == 1000


def test_binary_frames_are_short_and_even() -> None:
    d = opened()
    d.text(FIRST)
    d.audio(5000)
    sizes = {len(o) for o in d.out if isinstance(o, bytes)}
    assert max(sizes) == 9600
    assert all(size % 2 == 0 for size in sizes)


def test_a_second_config_changes_the_voice_of_what_follows() -> None:
    d = opened()
    d.say("This is one.")
    d.config(voice="other")
    d.say("This is two.")
    d.speak()
    assert [s.plan for s in d.started] == ["heart", "other"]
    assert d.types.count("ready") == 1


def test_a_config_within_text_is_refused() -> None:
    d = opened()
    d.text("half a sent")
    d.config(voice="other")
    assert d.last("error")["error"]["code"] == "config_within_text"
    assert d.closed.code == 1008


def test_a_config_is_complete_each_time() -> None:
    d = Driver()
    d.config(voice="heart", sentence_silence_duration=0)
    d.config(voice="heart")
    d.text(FIRST + SECOND)
    d.speak()
    d.speak()
    assert d.of("fragment_done")[1]["start_ms"] == 400


def test_the_session_id_does_not_change() -> None:
    d = Driver()
    d.config(session_id="a")
    d.config(session_id="a")
    assert d.types == ["ready", "ready"]
    d.config(session_id="b")
    assert d.last("error")["error"]["param"] == "session_id"


def test_lookahead_words_reach_the_splitter() -> None:
    d = Driver()
    d.config(fragment_lookahead_words=5)
    d.text("Good morning, my dear friends. And")
    assert d.started[0].text == "Good morning, my dear friends."
    server_default = Driver(lookahead_words=5)
    server_default.config()
    server_default.text("Good morning, my dear friends. And")
    assert server_default.started[0].text == "Good morning, my dear friends."


def test_the_plan_chooses_language_and_length() -> None:
    d = Driver(lambda config: Plan(language="german", max_chars=40))
    d.config()
    d.text("word " * 30)
    assert len(d.started[0].text) <= 40


# Failures of the engine ---------------------------------------------------------------------------


def test_one_failed_fragment_is_a_warning() -> None:
    d = opened()
    d.text(FIRST + SECOND)
    d.failed(EngineFailure("It broke."))
    d.speak()
    d.send("end")
    assert d.types == [
        "fragment_ready", "warning", "fragment_done",
        "fragment_ready", "first_pcm_ready", "pcm", "fragment_done", "done",
    ]  # fmt: skip
    warning = d.last("warning")
    assert "It broke." in warning["message"]
    assert warning["fragment"] == 0
    assert d.of("fragment_done")[0]["finish_reason"] == "error"
    assert d.last("done")["spoken_chars"] == len(SECOND)


def test_a_silent_fragment_is_a_warning() -> None:
    d = opened()
    d.text(FIRST)
    d.done()
    d.send("end")
    assert d.types == ["fragment_ready", "warning", "fragment_done", "done"]
    assert d.of("fragment_done")[0]["finish_reason"] == "silent"


def test_failures_in_a_row_are_the_servers_fault() -> None:
    d = opened()
    d.text(FIRST * 4)
    for _ in range(3):
        d.failed(EngineFailure("It broke."))
    assert d.types[-1] == "error"
    assert d.closed.code == 1011
    assert "3 fragments in a row" in d.last("error")["message"]


def test_a_success_between_failures_starts_the_count_again() -> None:
    d = opened()
    d.text(FIRST * 6)
    for _ in range(2):
        d.failed(OutputError("Silence."))
        d.failed(EngineFailure("It broke."))
        d.speak()
    d.send("end")
    assert d.types[-1] == "done"


@pytest.mark.parametrize(
    "error",
    [Busy("Full.", retry_after_s=7), NotReady("Bye."), RateLimited("Slow."), Timeout("Late.")],
)
def test_a_full_server_says_try_later(error: Any) -> None:
    d = opened()
    d.text(FIRST)
    d.failed(error)
    assert d.types[-1] == "error"
    assert d.closed.code == 1013
    if isinstance(error, Busy):
        assert d.last("error")["retry_after_s"] == error.retry_after_s


def test_a_failure_after_some_audio_keeps_the_clock_right() -> None:
    d = opened()
    d.text(FIRST + SECOND)
    d.audio(80)
    d.failed(EngineFailure("It broke."))
    d.speak(100)
    first, second = d.of("fragment_done")
    assert (first["start_ms"], first["end_ms"], first["finish_reason"]) == (0, 80, "error")
    assert second["start_ms"] == 380


def test_a_length_end_is_told() -> None:
    d = opened()
    d.text(FIRST)
    d.audio()
    d.done(reason="length")
    assert d.last("fragment_done")["finish_reason"] == "length"


def test_the_shell_can_end_a_session() -> None:
    d = opened()
    d.text(FIRST)
    d.audio()
    d.session.fail(NotReady("The server is shutting down."), d.now)
    d.settle()
    assert d.types[-1] == "error"
    assert d.cancelled == ["session_failed"]
    assert d.closed.code == 1013


# Malformed frames ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    ["", "{", "nonsense", "[]", "3", '"text"', "{}", '{"type":5}', '{"type":null}',
     '{"type":"shout"}', '{"type":"ready"}', "[" * 30000, '{"type":"text"}',
     '{"type":"text","text":5}', '{"type":"text","text":null}',
     '{"type":"segment_start"}', '{"type":"segment_start","segment_id":0}',
     '{"type":"segment_start","segment_id":"1"}', '{"type":"segment_start","segment_id":true}',
     '{"type":"segment_start","segment_id":-3}', '{"type":"skip_segment"}',
     '{"type":"flush","segment_id":"x"}', '{"type":"cancel","keep_session":"yes"}',
     '{"type":"text","text":' + "9" * 5000 + "}", '{"type":"config","speed":NaN}'],
    ids=lambda frame: frame[:40],
)  # fmt: skip
def test_a_malformed_frame_is_an_error_and_1008(frame: str) -> None:
    d = opened()
    d.raw(frame)
    error = d.last("error")["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    assert d.closed.code == 1008


def test_a_binary_frame_is_refused() -> None:
    d = opened()
    d.session.receive_bytes(d.now)
    d.settle()
    assert d.closed.code == 1008


def test_unknown_fields_are_ignored() -> None:
    d = opened()
    d.send("flush", mood="good")
    d.send("pause", why="phone")
    assert not d.of("error")


def test_after_the_last_event_everything_is_ignored() -> None:
    d = opened()
    d.send("cancel")
    out = list(d.out)
    for event in CLIENT_EVENTS:
        d.send(event, text="x", segment_id=1)
    d.raw("nonsense")
    d.session.receive_bytes(d.now)
    d.wait(1000)
    assert d.out == out


# Limits -------------------------------------------------------------------------------------------


def test_a_frame_has_a_limit_in_bytes() -> None:
    fits = json.dumps({"type": "text", "text": "x" * (64 * 1024 - 28)})
    assert len(fits) == 64 * 1024
    d = opened()
    d.raw(fits)
    assert not d.of("error")
    d.raw(json.dumps({"type": "text", "text": "ü" * 33_000}, ensure_ascii=False))
    assert d.last("error")["error"]["code"] == "frame_too_large"
    assert d.closed.code == 1008


def test_a_session_has_a_limit_of_text() -> None:
    d = opened(max_text_bytes=100)
    d.text("x" * 60)
    d.text("ü" * 20)
    assert not d.of("error")
    d.text("y")
    assert d.last("error")["error"]["code"] == "text_too_long"
    assert d.closed.code == 1008


def test_a_client_that_asks_without_reading_is_closed() -> None:
    d = opened(max_answers=20)
    d.reading = False
    for _ in range(30):
        d.send("resume")
    d.reading = True
    d.settle()
    assert d.types[-1] == "error"
    assert d.last("error")["error"]["code"] == "rate_limit_exceeded"
    assert len(d.out) <= 22
    assert d.closed.code == 1013


def test_segments_that_wait_have_a_limit() -> None:
    d = opened(max_segments=5)
    d.send("pause")
    for n in range(1, 7):
        d.send("segment_start", segment_id=n)
        d.send("flush", segment_id=n)
    assert d.types[-1] == "error"
    assert d.closed.code == 1013


def test_the_config_must_come_in_time() -> None:
    d = Driver()
    assert d.session.next_deadline() == 110.0
    d.wait(9.9)
    assert d.out == []
    d.wait(0.2)
    assert d.last("error")["error"]["code"] == "config_timeout"
    assert d.closed.code == 1008


def test_an_idle_session_is_closed() -> None:
    d = opened()
    d.wait(119)
    d.text("x")
    d.wait(119)
    assert d.out == []
    d.wait(2)
    assert d.last("error")["error"]["code"] == "idle_timeout"
    assert d.closed.code == 1008


def test_a_speaking_session_is_not_idle() -> None:
    d = opened()
    d.text(FIRST)
    d.wait(500)
    d.audio()
    d.wait(500)
    d.done()
    assert not d.of("error")
    d.wait(121)
    assert d.last("error")["error"]["code"] == "idle_timeout"


def test_a_client_that_does_not_read_is_closed() -> None:
    d = opened(send_timeout_s=30)
    d.text(FIRST)
    d.reading = False
    d.audio(1000)
    d.stick()
    d.wait(29)
    assert d.closed is None
    d.wait(2)
    assert (d.closed.code, d.closed.reason) == (1008, "send_timeout")
    assert d.cancelled == ["send_timeout"]
    assert d.session.next_frame(d.now) is None


def test_a_slow_client_that_makes_progress_is_not_closed() -> None:
    d = opened(send_timeout_s=30)
    d.text(FIRST)
    d.reading = False
    d.audio(1000)
    for _ in range(3):
        d.stick()
        d.wait(29)
        d.in_flight = False
        d.session.frame_sent(d.now)
    assert d.closed is None


# Back-pressure ------------------------------------------------------------------------------------


def test_the_engine_is_held_while_too_much_pcm_waits() -> None:
    d = opened(buffer_s=1.0)
    d.text(FIRST)
    d.reading = False
    d.audio(900)
    assert d.gate_open
    d.audio(200)
    assert not d.gate_open
    d.quiet()
    d.audio(100)
    for _ in range(4):
        d.stick()
        d.in_flight = False
        d.session.frame_sent(d.now)
    d.settle()
    assert not d.gate_open
    d.reading = True
    d.settle()
    assert d.gate_open
    assert d.heard_ms == 1200
    assert d.types == ["fragment_ready", "first_pcm_ready", "pcm"]


def test_no_fragment_is_started_while_the_engine_is_held() -> None:
    d = opened(buffer_s=1.0)
    d.text(FIRST + SECOND)
    d.reading = False
    d.speak(1500)
    assert len(d.started) == 1
    d.reading = True
    d.settle()
    assert len(d.started) == 2


def test_a_pause_while_held_is_acknowledged_at_once() -> None:
    d = opened(buffer_s=1.0)
    d.text(FIRST)
    d.take()
    d.reading = False
    d.audio(1500)
    d.quiet()
    d.send("pause")
    d.reading = True
    d.settle()
    assert d.types[0] == "paused"
    assert "pcm" not in d.types
    d.send("resume")
    assert d.heard_ms == 1500
    assert d.gate_open


def test_a_cancel_releases_a_held_engine() -> None:
    d = opened(buffer_s=1.0)
    d.text(FIRST)
    d.reading = False
    d.audio(1500)
    d.send("cancel", keep_session=True)
    assert d.gate_open
    d.reading = True
    d.settle()
    assert d.heard_ms == 0


# The table ----------------------------------------------------------------------------------------


def test_the_table_of_moves_names_real_events_and_methods() -> None:
    d = Driver()
    for moves in MOVES.values():
        assert set(moves) <= set(CLIENT_EVENTS)
        for method in moves.values():
            assert method == DEFER or callable(getattr(d.session, method))


@pytest.mark.parametrize("event", ["config", "text", "segment_start"])
def test_after_end_no_more_text(event: str) -> None:
    d = opened()
    d.text(FIRST)
    d.send("end")
    d.send(event, text="x", segment_id=1)
    assert d.last("error")["error"]["code"] == "unexpected_event"
    assert "end" in d.last("error")["message"]
    assert d.closed.code == 1008


@pytest.mark.parametrize("event", ["end", "flush", "pause", "resume"])
def test_after_end_these_do_no_harm(event: str) -> None:
    d = opened()
    d.text(FIRST)
    d.send("end")
    d.send(event)
    d.quiet()
    assert not d.of("error")


def test_disconnect_stops_the_engine_and_says_nothing() -> None:
    d = opened()
    d.text(FIRST)
    d.audio()
    d.out.clear()
    d.session.disconnected(d.now)
    d.settle()
    assert d.cancelled == ["client_gone"]
    assert (d.out, d.closed, d.state) == ([], None, State.CLOSED)
    assert d.session.next_deadline() is None


def test_late_notices_change_nothing() -> None:
    d = opened()
    d.text(FIRST)
    d.audio()
    d.send("cancel", keep_session=True)
    d.out.clear()
    d.audio(100, fragment=0)
    d.done(0)
    d.failed(EngineFailure("late"), 0)
    d.failed(Busy("late"), 0)
    d.session.engine_quiescent(99, d.now)
    d.settle()
    assert d.out == []
    assert d.state is State.OPEN


def test_late_notices_of_one_fragment_do_not_touch_the_next() -> None:
    d = opened()
    d.text(FIRST + SECOND)
    d.speak()
    d.take()
    d.audio(100, fragment=0)
    d.done(0)
    d.failed(EngineFailure("late"), 0)
    assert d.take() == []
    d.speak()
    assert d.last("fragment_done")["fragment"] == 1


def test_an_error_of_ours_is_not_a_closed_session() -> None:
    with pytest.raises(InvalidRequest):
        opened().session.handle({"type": "shout"}, 0.0)


# A config that takes its time ---------------------------------------------------------------------


def configuring() -> Driver:
    d = Driver()
    d.resolving = False
    d.config(voice="heart", session_id="mine")
    assert d.state is State.CONFIGURING
    return d


def test_events_wait_for_the_config_and_are_handled_in_order() -> None:
    d = configuring()
    d.text("This is ")
    d.text("in time. ")
    d.send("end")
    assert d.out == []
    d.session.config_resolved(Plan(what="late"), d.now)
    d.settle()
    assert [(s.text, s.plan) for s in d.started] == [("This is in time.", "late")]
    assert d.types == ["ready", "fragment_ready"]
    assert {e["session_id"] for e in d.events} == {"mine"}
    d.speak()
    assert d.types[-1] == "done"


def test_a_deferred_event_that_is_wrong_ends_the_session() -> None:
    d = configuring()
    d.send("flush", segment_id=3)
    d.text("never spoken")
    d.session.config_resolved(Plan(), d.now)
    d.settle()
    assert d.types == ["ready", "error"]
    assert d.started == []
    assert d.closed.code == 1008


def test_a_malformed_event_does_not_wait() -> None:
    d = configuring()
    d.send("text", text=5)
    assert d.types == ["error"]


def test_cancel_does_not_wait() -> None:
    d = configuring()
    d.text("never spoken")
    d.send("cancel")
    assert d.types == ["cancelled"]
    d.session.config_resolved(Plan(), d.now)
    d.settle()
    assert d.started == []
    assert d.types == ["cancelled"]


def test_cancel_and_keep_while_configuring_forgets_what_waited() -> None:
    d = configuring()
    d.text("never spoken")
    d.send("cancel", keep_session=True)
    d.session.config_resolved(Plan(), d.now)
    d.say("But this is.")
    assert [s.text for s in d.started] == ["But this is."]


def test_audio_goes_on_while_a_new_config_is_looked_up() -> None:
    d = opened()
    d.say("This is one.")
    d.resolving = False
    d.config(voice="other")
    d.audio(100)
    d.done()
    assert d.heard_ms == 100
    d.say("This is two.")
    assert len(d.started) == 1
    d.session.config_resolved(Plan(what="other"), d.now)
    d.settle()
    assert d.started[1].plan == "other"


def test_too_many_events_while_configuring() -> None:
    d = Driver(max_deferred=10)
    d.resolving = False
    d.config()
    for _ in range(12):
        d.text("x")
    assert d.closed.code == 1013


def test_a_refusal_that_comes_late_is_no_second_error() -> None:
    d = configuring()
    d.session.disconnected(d.now)
    d.session.config_refused(InvalidRequest("No."), d.now)
    d.settle()
    assert d.out == []
