"""Pausing, cancelling, segments and routing: what a client does while audio is being made."""

from __future__ import annotations

import itertools

import pytest
from session_driver import Driver, opened

from phonate.speech.session_events import Config, Plan, Route
from phonate.speech.session_flow import Flow
from phonate.speech.session_moves import State

FIRST = "This is the first sentence. "
SECOND = "And this is the second one. "
THIRD = "The third one closes it all. "


# A server that stops ------------------------------------------------------------------------------


def test_draining_speaks_what_is_here_and_takes_no_more() -> None:
    d = opened()
    d.text(FIRST + "Half a sent")
    d.take()
    d.session.drain(d.now, 20)
    assert d.session.state is State.ENDING
    for event in ("text", "flush", "end", "config"):
        d.send(event, **({"text": SECOND} if event == "text" else {}))
    d.speak()
    d.speak()
    assert d.types[0] == "draining"
    assert d.last("done")["spoken_chars"] == len(FIRST + "Half a sent")
    assert [call.text for call in d.started] == [FIRST.strip(), "Half a sent"]
    assert d.closed is not None
    assert d.closed.code == 1012


def test_a_cancel_that_keeps_the_session_ends_a_draining_one() -> None:
    d = opened()
    d.text(FIRST)
    d.take()
    d.session.drain(d.now, 20)
    d.send("cancel", keep_session=True)
    assert d.take() == ["draining", "cancelled", "done"]
    assert d.closed is not None
    assert d.closed.code == 1012


def test_a_config_on_its_way_is_still_taken_when_the_server_stops() -> None:
    d = Driver()
    d.resolving = False
    d.config(voice="heart")
    d.text(FIRST)
    d.session.drain(d.now, 20)
    d.text(SECOND)
    d.session.config_resolved(Plan(what="heart"), d.now)
    d.settle()
    d.speak()
    assert [call.text for call in d.started] == [FIRST.strip()]
    assert d.take()[-1] == "done"
    assert d.closed is not None
    assert d.closed.code == 1012


# Pause and resume ---------------------------------------------------------------------------------


def test_paused_is_acknowledged_only_when_the_engine_stands_still() -> None:
    d = opened()
    d.text(FIRST)
    d.audio(100)
    d.take()
    d.send("pause")
    d.audio(80)
    assert d.take() == []
    assert not d.gate_open
    d.quiet()
    assert d.take() == ["paused"]
    d.send("resume")
    assert d.take() == ["resumed", "pcm"]
    assert d.gate_open


def test_no_pcm_between_paused_and_resumed() -> None:
    d = opened()
    d.text(FIRST + SECOND)
    d.audio()
    d.send("pause")
    d.quiet()
    d.take()
    d.audio(80)
    d.done()
    d.wait(10)
    assert d.take() == []
    assert len(d.started) == 1
    d.send("resume")
    assert d.take() == ["resumed", "pcm", "fragment_done", "fragment_ready"]
    assert len(d.started) == 2


def test_audio_that_waits_for_a_slow_client_is_held_by_a_pause_too() -> None:
    d = opened()
    d.text(FIRST)
    d.reading = False
    d.audio(2000)
    d.reading = True
    d.session.receive('{"type":"pause"}', d.now)
    d.settle()
    d.quiet()
    assert d.types == ["fragment_ready", "first_pcm_ready", "paused"]


def test_a_pause_with_nothing_to_say_is_acknowledged() -> None:
    d = opened()
    d.send("pause")
    d.quiet()
    d.send("resume")
    assert d.types == ["paused", "resumed"]


def test_text_is_accepted_while_paused() -> None:
    d = opened()
    d.send("pause")
    d.quiet()
    d.text(FIRST)
    d.send("flush")
    assert d.started == []
    d.send("resume")
    assert [s.text for s in d.started] == [FIRST.strip()]


def test_every_duplicate_is_answered() -> None:
    d = opened()
    d.send("pause")
    d.quiet()
    d.send("pause")
    d.send("pause")
    d.send("resume")
    d.send("resume")
    assert d.types == ["paused", "paused", "paused", "resumed", "resumed"]


def test_quick_alternation_is_answered_in_order_once_the_engine_stands_still() -> None:
    d = opened()
    d.text(FIRST)
    d.audio()
    d.take()
    for event in ("pause", "resume", "pause", "resume"):
        d.send(event)
    assert d.take() == []
    d.quiet()
    assert d.take() == ["paused", "resumed", "paused", "resumed"]
    assert d.session.flow is Flow.RUNNING
    assert d.gate_open


def test_a_thousand_toggles_are_not_a_thousand_answers() -> None:
    d = opened()
    d.text(FIRST)
    for _ in range(1000):
        d.send("pause")
        d.send("resume")
    d.send("pause")
    d.quiet()
    toggles = [t for t in d.types if t in ("paused", "resumed")]
    assert len(toggles) <= 17
    assert toggles[-1] == "paused"
    assert d.session.flow is Flow.PAUSED
    d.send("resume")
    assert d.session.flow is Flow.RUNNING


def test_an_old_notice_does_not_acknowledge_a_new_pause() -> None:
    d = opened()
    d.text(FIRST)
    d.send("pause")
    d.quiet()
    d.send("resume")
    d.send("pause")
    d.take()
    d.session.engine_quiescent(1, d.now)
    d.settle()
    assert d.take() == []
    d.session.engine_quiescent(2, d.now)
    d.settle()
    assert d.take() == ["paused"]


def test_a_paused_session_is_cancelled_after_its_time() -> None:
    d = opened(pause_timeout_s=60)
    d.text(FIRST)
    d.audio()
    d.send("pause")
    d.quiet()
    d.wait(59)
    assert d.closed is None
    d.wait(2)
    assert d.last("cancelled")["reason"] == "pause_timeout"
    assert d.cancelled == ["pause_timeout"]
    assert d.closed.code == 1000


def test_text_does_not_make_a_pause_longer() -> None:
    d = opened(pause_timeout_s=60)
    d.send("pause")
    d.quiet()
    d.wait(40)
    d.text("Meanwhile. ")
    d.wait(25)
    assert d.last("cancelled")["reason"] == "pause_timeout"


def test_a_pause_that_the_engine_never_obeys_ends_too() -> None:
    d = opened()
    d.text(FIRST)
    d.send("pause")
    d.wait(61)
    assert d.types[-1] == "cancelled"


def test_resuming_resets_the_pause_clock() -> None:
    d = opened()
    for _ in range(3):
        d.send("pause")
        d.quiet()
        d.wait(50)
        d.send("resume")
    assert d.closed is None


def test_a_paused_session_is_not_idle() -> None:
    d = opened(pause_timeout_s=1000)
    d.send("pause")
    d.quiet()
    d.wait(900)
    assert d.closed is None


def test_pause_after_end_holds_the_rest() -> None:
    d = opened()
    d.text(FIRST)
    d.send("end")
    d.audio()
    d.send("pause")
    d.quiet()
    d.done()
    d.take()
    d.wait(5)
    assert d.take() == []
    d.send("resume")
    assert d.take() == ["resumed", "done"]


# Cancel -------------------------------------------------------------------------------------------


def test_cancel_stops_everything_and_ends_the_session() -> None:
    d = opened()
    d.text(FIRST + SECOND)
    d.audio(1000)
    d.send("cancel")
    cancelled = d.last("cancelled")
    assert cancelled["reason"] == "client"
    assert cancelled["spoken_ms"] == 1000
    assert cancelled["spoken_chars"] == 15
    assert d.cancelled == ["cancelled"]
    assert (d.closed.code, d.state) == (1000, State.CLOSED)
    d.audio(100)
    assert d.types[-1] == "cancelled"


def test_cancel_drops_what_waits_to_be_sent() -> None:
    d = opened()
    d.text(FIRST)
    d.take()
    d.reading = False
    d.speak(2000)
    d.send("cancel")
    d.reading = True
    d.settle()
    assert d.types == ["cancelled"]
    assert d.last("cancelled")["spoken_ms"] == 0
    assert d.last("cancelled")["spoken_chars"] == 0


def test_spoken_counts_what_was_given_to_the_client() -> None:
    d = opened()
    d.text(FIRST)
    d.reading = False
    d.speak(2000)
    for _ in range(6):
        d.stick()
        d.in_flight = False
        d.session.frame_sent(d.now)
    d.reading = True
    d.send("cancel")
    spoken = d.last("cancelled")
    assert spoken["spoken_ms"] == 1000 == d.heard_ms
    assert spoken["spoken_chars"] == len(FIRST) // 2


def test_with_keep_session_the_session_goes_on() -> None:
    d = opened()
    d.text(FIRST + "half a sent")
    d.audio(100)
    d.send("cancel", keep_session=True)
    assert d.closed is None
    d.say("A new thing.")
    assert d.started[-1].text == "A new thing."
    d.speak(100)
    done = d.last("fragment_done")
    assert (done["text"], done["start_ms"], done["end_ms"]) == ("A new thing.", 100, 200)
    d.send("end")
    assert d.types[-1] == "done"


def test_keep_session_false_and_null_end_it() -> None:
    for value in (False, None):
        d = opened()
        d.send("cancel", keep_session=value)
        assert d.closed.code == 1000


def test_cancel_twice() -> None:
    d = opened()
    d.text(FIRST)
    d.send("cancel", keep_session=True)
    d.send("cancel", keep_session=True)
    d.send("cancel")
    d.send("cancel")
    assert d.types[-3:] == ["cancelled"] * 3
    assert d.cancelled == ["cancelled"]


def test_cancel_while_queued() -> None:
    d = opened()
    d.text(FIRST)
    assert len(d.started) == 1
    d.send("cancel", keep_session=True)
    assert d.cancelled == ["cancelled"]
    d.session.engine_started(0, d.now)
    d.audio(100, fragment=0)
    assert d.heard_ms == 0


def test_cancel_after_end() -> None:
    d = opened()
    d.text(FIRST)
    d.send("end")
    d.send("cancel")
    assert d.types[-1] == "cancelled"
    assert d.closed.code == 1000


def test_cancel_after_end_with_keep_session_opens_it_again() -> None:
    d = opened()
    d.text(FIRST)
    d.send("end")
    d.send("cancel", keep_session=True)
    d.say("A new thing.")
    assert d.started[-1].text == "A new thing."


def test_cancel_while_paused_with_keep_session_stays_paused() -> None:
    d = opened()
    d.text(FIRST)
    d.audio()
    d.send("pause")
    d.quiet()
    d.send("cancel", keep_session=True)
    d.say("A new thing.")
    assert len(d.started) == 1
    d.send("resume")
    assert d.started[-1].text == "A new thing."


def test_cancel_while_pausing_still_acknowledges_the_pause() -> None:
    d = opened()
    d.text(FIRST)
    d.audio()
    d.send("pause")
    d.send("cancel", keep_session=True)
    d.quiet()
    assert d.types[-2:] == ["cancelled", "paused"]


def test_cancelled_comes_before_audio_that_waits() -> None:
    d = opened()
    d.text(FIRST)
    d.reading = False
    d.audio(5000)
    d.stick()
    d.send("cancel", keep_session=True)
    d.reading = True
    d.unstick()
    assert d.types[-1] == "cancelled"
    assert d.heard_ms <= 200


# Segments -----------------------------------------------------------------------------------------


def segment(d: Driver, n: int, text: str) -> None:
    d.send("segment_start", segment_id=n)
    d.text(text)
    d.send("flush", segment_id=n)


def test_segments_are_told_in_order() -> None:
    d = opened()
    segment(d, 1, FIRST)
    segment(d, 5, SECOND)
    d.speak()
    d.speak()
    assert d.types == [
        "segment_started", "fragment_ready", "first_pcm_ready", "pcm", "fragment_done",
        "segment_done", "segment_started",
        "fragment_ready", "pcm", "first_pcm_ready", "pcm", "fragment_done", "segment_done",
    ]  # fmt: skip
    assert [e["segment_id"] for e in d.of("segment_started")] == [1, 5]
    assert [(e["segment_id"], e["skipped"]) for e in d.of("segment_done")] == [
        (1, False),
        (5, False),
    ]
    assert [e["segment_id"] for e in d.of("fragment_done")] == [1, 5]


@pytest.mark.parametrize("n", [1, 3])
def test_segment_ids_increase_strictly(n: int) -> None:
    d = opened()
    segment(d, 3, FIRST)
    d.send("segment_start", segment_id=n)
    assert d.last("error")["error"]["code"] == "segment_order"
    assert d.closed.code == 1008


def test_a_segment_must_be_flushed_before_the_next() -> None:
    d = opened()
    d.send("segment_start", segment_id=1)
    d.text(FIRST)
    d.send("flush")
    d.send("segment_start", segment_id=2)
    assert d.last("error")["error"]["code"] == "segment_open"


@pytest.mark.parametrize("event", ["flush", "skip_segment"])
def test_a_segment_that_never_was(event: str) -> None:
    d = opened()
    segment(d, 3, FIRST)
    d.send(event, segment_id=4)
    assert d.last("error")["error"]["code"] == "unknown_segment"
    assert d.last("error")["error"]["param"] == "segment_id"


def test_a_flush_without_id_leaves_the_segment_open() -> None:
    d = opened()
    d.send("segment_start", segment_id=1)
    d.say("This is one.")
    d.speak()
    d.say("This is two.")
    d.speak()
    assert "segment_done" not in d.types
    d.send("flush", segment_id=1)
    assert d.types[-1] == "segment_done"


def test_an_empty_segment_is_started_and_done() -> None:
    d = opened()
    segment(d, 1, "")
    segment(d, 2, "👍")
    assert d.types == ["segment_started", "segment_done"] * 2


def test_text_held_before_a_segment_is_not_part_of_it() -> None:
    d = opened()
    d.text("held words")
    segment(d, 1, "inside of it")
    d.speak()
    assert [(s.text) for s in d.started] == ["held words", "inside of it"]
    assert "segment_id" not in d.of("fragment_done")[0]


def test_end_closes_an_open_segment() -> None:
    d = opened()
    d.send("segment_start", segment_id=1)
    d.text("no end mark")
    d.send("end")
    d.speak()
    assert d.types[-2:] == ["segment_done", "done"]


def test_skipping_the_active_segment_stops_it() -> None:
    d = opened()
    segment(d, 1, FIRST + SECOND)
    segment(d, 2, THIRD)
    d.audio(1000)
    d.take()
    d.send("skip_segment", segment_id=1)
    assert d.cancelled == ["skipped"]
    assert d.types == ["fragment_done", "segment_done", "segment_started", "fragment_ready"]
    done = d.last("fragment_done")
    assert (done["finish_reason"], done["start_ms"], done["end_ms"]) == ("cancelled", 0, 1000)
    assert d.last("segment_done")["skipped"] is True
    assert d.started[-1].text == THIRD.strip()
    d.audio(500, fragment=0)
    d.speak(100)
    assert d.last("fragment_done")["start_ms"] == 1000
    d.send("end")
    assert d.last("done")["spoken_chars"] == 15 + len(THIRD)


def test_skipping_drops_audio_that_waits() -> None:
    d = opened()
    segment(d, 1, FIRST)
    segment(d, 2, SECOND)
    d.reading = False
    d.speak(2000)
    d.speak(300)
    d.send("skip_segment", segment_id=1)
    d.take()
    d.reading = True
    d.settle()
    assert d.heard_ms in (300, 600)
    assert [(e["segment_id"], e["skipped"]) for e in d.of("segment_done")] == [
        (1, True),
        (2, False),
    ]
    assert d.types.index("segment_done") < d.types.index("segment_started")


def test_skipping_frees_the_engine_that_its_audio_held() -> None:
    d = opened(buffer_s=1.0)
    segment(d, 1, FIRST)
    segment(d, 2, SECOND)
    d.reading = False
    d.audio(1500)
    assert not d.gate_open
    d.send("skip_segment", segment_id=1)
    assert d.gate_open
    assert d.started[-1].text == SECOND.strip()


def test_skipping_a_queued_segment_passes_it_over() -> None:
    d = opened()
    segment(d, 1, FIRST)
    segment(d, 2, SECOND)
    segment(d, 3, THIRD)
    d.send("skip_segment", segment_id=2)
    assert d.cancelled == []
    d.speak()
    d.speak()
    assert [s.text for s in d.started] == [FIRST.strip(), THIRD.strip()]
    assert [(e["segment_id"], e["skipped"]) for e in d.of("segment_done")] == [
        (1, False), (2, True), (3, False),
    ]  # fmt: skip


def test_skipping_a_done_segment_is_nothing() -> None:
    d = opened()
    segment(d, 1, FIRST)
    d.speak()
    d.take()
    d.send("skip_segment", segment_id=1)
    d.send("skip_segment", segment_id=1)
    assert d.take() == []
    assert d.closed is None


def test_skipping_twice_is_once() -> None:
    d = opened()
    segment(d, 1, FIRST)
    d.audio()
    d.send("skip_segment", segment_id=1)
    d.send("skip_segment", segment_id=1)
    assert len(d.of("segment_done")) == 1


def test_text_of_a_skipped_segment_is_dropped_until_its_flush() -> None:
    d = opened()
    d.send("segment_start", segment_id=1)
    d.text(FIRST + "held")
    d.send("skip_segment", segment_id=1)
    d.text(SECOND)
    d.send("flush")
    d.text(SECOND)
    d.send("flush", segment_id=1)
    d.send("flush", segment_id=1)
    segment(d, 2, THIRD)
    assert [s.text for s in d.started] == [FIRST.strip(), THIRD.strip()]
    assert len(d.of("segment_done")) == 1


def test_skipping_while_paused() -> None:
    d = opened()
    segment(d, 1, FIRST)
    segment(d, 2, SECOND)
    d.audio()
    d.send("pause")
    d.quiet()
    d.take()
    d.send("skip_segment", segment_id=1)
    assert d.take() == ["fragment_done", "segment_done"]
    d.send("resume")
    assert d.take() == ["resumed", "segment_started", "fragment_ready"]


def test_a_cancel_forgets_segments_but_not_their_numbers() -> None:
    d = opened()
    d.send("segment_start", segment_id=4)
    d.text(FIRST)
    d.send("cancel", keep_session=True)
    d.send("flush", segment_id=4)
    d.send("skip_segment", segment_id=4)
    segment(d, 5, SECOND)
    d.speak()
    assert d.last("segment_done") == {
        "type": "segment_done", "session_id": "s1", "request_id": "r1",
        "segment_id": 5, "skipped": False,
    }  # fmt: skip
    d.send("segment_start", segment_id=5)
    assert d.last("error")["error"]["code"] == "segment_order"


# Routing ------------------------------------------------------------------------------------------


class Router:
    """Waits `wait_s` for German, and is sure of it once it sees the word "ist"."""

    def __init__(self, wait_s: float = 0.1) -> None:
        self.wait_s = wait_s
        self.asked: list[str] = []

    def __call__(self, text: str) -> Route:
        self.asked.append(text)
        if "ist" in text.split():
            return Route("german voice", "german", "Anna")
        return Route("english voice", "english", "Bob", wait_s=self.wait_s)


def routed(router: Router) -> Driver:
    def resolve(config: Config) -> Plan:
        return Plan(route=router)

    d = Driver(resolve)
    d.config()
    d.take()
    return d


def test_a_sure_route_starts_at_once() -> None:
    d = routed(Router())
    d.text("Das ist ein Satz. ")
    assert d.started[0].plan == "german voice"
    assert d.last("fragment_ready")["language"] == "german"
    assert d.last("fragment_ready")["voice"] == "Anna"


def test_an_unsure_first_fragment_waits_for_its_time() -> None:
    d = routed(Router(0.1))
    d.text("Guten Morgen, ")
    assert d.started == []
    assert d.session.next_deadline() == pytest.approx(d.now + 0.1)
    d.wait(0.2)
    assert d.started[0].plan == "english voice"


def test_more_words_decide_earlier() -> None:
    d = routed(Router(0.1))
    d.text("Guten Morgen, ")
    d.text("das ist aber ")
    assert d.started == []
    d.text("fein")
    assert d.started[0].plan == "german voice"
    assert d.started[0].text == "Guten Morgen,"


def test_at_the_deadline_the_words_that_came_are_seen() -> None:
    d = routed(Router(0.1))
    d.text("Guten Morgen, ")
    d.text("das ist ")
    d.wait(0.2)
    assert d.started[0].plan == "german voice"


@pytest.mark.parametrize("event", ["flush", "end"])
def test_nothing_more_to_come_decides_at_once(event: str) -> None:
    d = routed(Router(0.1))
    d.text("Guten Morgen, ")
    d.text("Leute")
    d.send(event)
    assert len(d.started) == 1


def test_a_flushed_fragment_does_not_wait() -> None:
    d = routed(Router(0.1))
    d.say("Guten Morgen")
    assert len(d.started) == 1


def test_later_fragments_do_not_wait() -> None:
    d = routed(Router(0.1))
    d.text("Guten Morgen, ")
    d.wait(0.2)
    d.text("Leute von heute. Nun denn, ihr da. ")
    d.speak()
    d.speak()
    assert len(d.started) == 3


def test_cancel_while_routing() -> None:
    d = routed(Router(0.1))
    d.text("Guten Morgen, ")
    d.send("cancel", keep_session=True)
    d.wait(1)
    assert (d.started, d.cancelled) == ([], [])
    assert d.types == ["cancelled"]


def test_pause_while_routing_starts_nothing() -> None:
    d = routed(Router(0.1))
    d.text("Guten Morgen, ")
    d.send("pause")
    d.quiet()
    d.wait(1)
    assert d.started == []
    d.send("resume")
    assert len(d.started) == 1


def test_skip_while_routing() -> None:
    d = routed(Router(0.1))
    d.send("segment_start", segment_id=1)
    d.text("Guten Morgen, ")
    d.send("skip_segment", segment_id=1)
    d.wait(1)
    assert d.started == []
    assert d.last("segment_done")["skipped"] is True


# Every order of a few events ----------------------------------------------------------------------

SCRIPT = [
    ("pause", {}),
    ("resume", {}),
    ("cancel", {"keep_session": True}),
    ("skip_segment", {"segment_id": 1}),
    ("flush", {"segment_id": 1}),
]


@pytest.mark.parametrize("order", list(itertools.permutations(range(len(SCRIPT)))))
def test_any_order_of_control_events_leaves_a_session_that_works(order: tuple[int, ...]) -> None:
    d = opened()
    d.send("segment_start", segment_id=1)
    d.text(FIRST + "and more")
    for step in order:
        name, fields = SCRIPT[step]
        d.audio(40, fragment=0)
        d.send(name, **fields)
        d.quiet()
    d.send("resume")
    d.quiet()
    d.send("cancel", keep_session=True)
    d.say("It still works.")
    assert d.started[-1].text == "It still works."
    d.speak(100)
    d.send("end")
    assert d.types[-1] == "done"
    assert d.last("done")["spoken_ms"] == d.heard_ms
    assert d.closed.code == 1000
