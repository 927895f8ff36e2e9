"""A random walk through a session: any client, any engine, any transport, and what must hold.

    Walk(seed).run()        raises AssertionError with the steps that led there

Documented errors are fine; an exception, a frame out of place or a wrong clock is a bug.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from session_driver import MS, Driver

from phonate.errors import Busy, EngineFailure, InvalidRequest, OutputError, Timeout, VoiceNotFound
from phonate.speech.session_events import CLIENT_EVENTS, Config, Plan, Route
from phonate.speech.session_moves import State
from phonate.speech.vllm_session import VllmSession

TEXTS = [
    "", " ", "\n\n", "a", "Hello", "This is a sentence. ", "Well, then it goes on, and on; ",
    "👍", "...", "Dr. Smith came at 9:30 p.m. to see. ", "今天天气很好我们出去玩吧。",
    "word " * 120,
    "\ud83d", "\ude00", "x" * 500, "Is it? Yes! No. ", "\x00", "<|im_end|>", "e\u0301" * 30,
]  # fmt: skip

VALUES: list[Any] = [
    None, True, False, 0, 1, 2, 3, -1, 0.5, 1e300, 2**70, "", "x", "1", "tone", [], [1], {},
    {"id": "a"}, "\ud800", "x" * 300, "pcm", "mp3",
]  # fmt: skip

FIELDS = [*Config.model_fields, "text", "segment_id", "keep_session", "type", "nonsense"]

FINAL = ("done", "cancelled", "error")
CODES = {1000, 1008, 1011, 1013}
ERROR_TYPES = {
    "invalid_request_error", "unsupported_operation", "server_error", "output_error",
    "server_busy", "timeout_error", "rate_limit_error", "cancelled",
}  # fmt: skip


class Walk:
    """One session with everything random. `wild`: how many of the client's frames are nonsense."""

    def __init__(
        self, seed: int, *, steps: int = 120, wild: float = 0.02, vllm: bool = False
    ) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.n_steps = steps
        self.wild = wild
        self.log: list[str] = []
        self.driver = Driver(
            self._resolve,
            buffer_s=self.random.choice([0.3, 1.0, 30.0]),
            send_timeout_s=5,
            pause_timeout_s=20,
            max_text_bytes=self.random.choice([3000, 2**20]),
            lookahead_words=self.random.choice([0, 0, 3]),
            max_answers=50,
            max_segments=20,
        )
        if vllm:
            self.driver.machine = VllmSession(self.driver.session)
        self.segment = 0
        self.checks = _VllmChecks() if vllm else _Checks()
        self.seen = 0
        self.client = self._vllm_client if vllm else self._client

    def run(self) -> None:
        try:
            self._go()
        except Exception as error:
            trail = "\n  ".join(self.log[-60:])
            raise AssertionError(f"seed {self.seed}: {error!r}\n  {trail}") from error

    def _go(self) -> None:
        actions: list[tuple[int, Callable[[], object]]] = [
            (6, self.client),
            (8, self._engine),
            (2, self._transport),
            (2, self._time),
            (2, self.driver.quiet),
        ]
        weights, calls = zip(*actions, strict=True)
        if self.random.random() < 0.95:
            self._send("session.config" if self.client == self._vllm_client else "config")
        for _ in range(self.n_steps):
            call = self.random.choices(calls, weights)[0]
            call()
            self._check()
        self._wind_up()

    def _check(self) -> None:
        d = self.driver
        for frame in d.out[self.seen :]:
            self.checks.frame(frame, d)
        self.seen = len(d.out)
        if d.closed is not None:
            assert d.closed.code in CODES
            assert d.state is State.CLOSED
        if d.state is State.CLOSED:
            assert d.session.next_deadline() is None
        deadline = d.session.next_deadline()
        if deadline is not None and not d.in_flight:
            assert deadline > d.now - 1e-9, "a deadline in the past"

    def _wind_up(self) -> None:
        """Let everything go well from here: the session must come to its end."""
        d = self.driver
        d.reading = True
        if d.in_flight:
            d.unstick()
        d.settle()
        if d.state is State.AWAITING_CONFIG:
            d.wait(11)
        for name in ("resume", "session.close" if self.client == self._vllm_client else "end"):
            if self.client != self._vllm_client or name != "resume":
                self._send(name)
            d.quiet()
        for _ in range(3000):
            if d.state is State.CLOSED:
                break
            d.quiet()
            if self._is_speaking():
                d.speak(40)
            else:
                d.wait(1.0)
        self._check()
        assert d.state is State.CLOSED, f"never ended: {d.state}, {d.session.flow}"
        self.checks.end(d)

    def _is_speaking(self) -> bool:
        started = self.driver.started
        return bool(started) and self.driver.session._pipeline.is_current(started[-1].fragment)

    # What the world does ----------------------------------------------------------------------

    def _send(self, type_: str, **fields: Any) -> None:
        self.log.append(f"{type_} {str(fields)[:80]}")
        self.driver.send(type_, **fields)

    def _client(self) -> None:
        r = self.random
        if r.random() < self.wild:
            self._nonsense()
            return
        pick = r.choices(
            ["text", "flush", "segment", "skip", "pause", "resume", "cancel", "config", "end"],
            [12, 3, 2, 1, 2, 3, 0.5, 0.3, 0.2],
        )[0]
        if pick == "text":
            self._send("text", text=r.choice(TEXTS))
        elif pick == "flush":
            self._send("flush", **({"segment_id": self.segment} if self.segment else {}))
        elif pick == "segment":
            self._send("flush", **({"segment_id": self.segment} if self.segment else {}))
            self.segment += r.randint(1, 2)
            self._send("segment_start", segment_id=self.segment)
        elif pick == "skip" and self.segment:
            self._send("skip_segment", segment_id=r.randint(max(1, self.segment - 2), self.segment))
        elif pick == "cancel":
            self._send("cancel", keep_session=r.random() < 0.8)
        elif pick == "config":
            self._send("flush")
            self._send("config", voice="other")
        elif pick in ("pause", "resume", "end"):
            self._send(pick)

    def _vllm_client(self) -> None:
        r = self.random
        if r.random() < self.wild:
            self._nonsense()
            return
        pick = r.choices(
            ["input.text", "input.done", "session.config", "session.close"], [8, 4, 1, 0.1]
        )
        fields: dict[str, Any] = {}
        if pick[0] == "input.text":
            fields["text"] = r.choice(TEXTS)
        elif pick[0] == "session.config":
            fields = {
                "split_granularity": r.choice(["none", "sentence", "clause", None]),
                "stream_audio": r.choice([True, False, None]),
            }
        self._send(pick[0], **fields)

    def _nonsense(self) -> None:
        r = self.random
        kind = r.choice([*CLIENT_EVENTS, "input.text", "session.config", "shout"])
        event = {
            "type": kind,
            **{r.choice(FIELDS): r.choice(VALUES) for _ in range(r.randint(0, 4))},
        }
        frame = json.dumps(event)
        if r.random() < 0.3:
            at = r.randrange(len(frame))
            frame = frame[:at] + r.choice(["", "{", '"', "\\", "9" * 50]) + frame[at + 1 :]
        self.log.append(f"nonsense {frame[:80]}")
        self.driver.raw(frame)

    def _engine(self) -> None:
        r, d = self.random, self.driver
        if not d.started:
            return
        if not self._is_speaking() or r.random() < 0.05:
            self._late_notice()
            return
        if not d.gate_open and not d.pauses:
            return
        pick = r.choices(["audio", "done", "fail"], [10, 4, 0.7])[0]
        self.log.append(f"engine {pick}")
        if pick == "audio":
            d.audio(r.choice([1, 40, 80, 80, 700]))
        elif pick == "done":
            d.done(reason=r.choice(["stop", "stop", "length"]))
        else:
            d.failed(
                r.choice([EngineFailure("x"), OutputError("x"), InvalidRequest("x"), Busy("x")])
            )

    def _late_notice(self) -> None:
        r, d = self.random, self.driver
        fragment = r.choice(d.started).fragment
        if d.session._pipeline.is_current(fragment):
            return
        self.log.append(f"late notice {fragment}")
        r.choice(
            [
                lambda: d.audio(80, fragment),
                lambda: d.done(fragment),
                lambda: d.failed(Timeout("late"), fragment),
                lambda: d.session.engine_quiescent(r.randint(0, 5), d.now),
            ]
        )()

    def _transport(self) -> None:
        d, r = self.driver, self.random
        pick = r.choice(["read", "stop", "stick", "unstick"])
        self.log.append(f"transport {pick}")
        if pick == "read":
            d.reading = True
        elif pick == "stop":
            d.reading = r.random() < 0.5
        elif pick == "stick" and not d.in_flight:
            frame = d.machine.next_frame(d.now)
            if frame is not None:
                d.in_flight = True
                d.out.append(frame)
        elif pick == "unstick" and d.in_flight:
            d.unstick()
        d.settle()

    def _time(self) -> None:
        seconds = self.random.choice([0.01, 0.05, 0.3, 1, 3])
        self.log.append(f"wait {seconds}")
        self.driver.wait(seconds)

    def _resolve(self, config: Config) -> Plan:
        if self.random.random() < 0.02:
            raise VoiceNotFound("x", ["tone"])
        route = self._route if self.random.random() < 0.3 else None
        return Plan(what=config.voice, max_chars=self.random.choice([40, 400]), route=route)

    def _route(self, text: str) -> Route:
        return Route("routed", "english", "Bob", wait_s=self.random.choice([0.0, 0.04, 0.12]))


class _Checks:
    """What must hold for every frame of the protocol, in order."""

    def __init__(self) -> None:
        self.samples = 0
        self.paused = False
        self.over = False
        self.last_ready = -1
        self.open: set[int] = set()
        self.last_end = 0
        self.segments_started: set[int] = set()
        self.segments_done: set[int] = set()

    def frame(self, frame: Any, d: Driver) -> None:
        assert not self.over, f"after the last event: {str(frame)[:80]}"
        if isinstance(frame, bytes):
            assert not self.paused, "PCM while paused"
            assert 0 < len(frame) <= 9600
            assert len(frame) % 2 == 0
            self.samples += len(frame) // 2
            return
        json.dumps(frame)
        assert frame["session_id"]
        assert frame["request_id"]
        getattr(self, "_on_" + frame["type"])(frame, d)

    @property
    def _ms(self) -> int:
        return round(self.samples / MS)

    def _on_ready(self, event: Any, d: Driver) -> None:
        assert event["audio"]["sample_rate_hz"] == 24000

    def _on_fragment_ready(self, event: Any, d: Driver) -> None:
        assert event["fragment"] > self.last_ready
        self.last_ready = event["fragment"]
        self.open.add(event["fragment"])
        assert any(c.isalnum() for c in event["text"])

    def _on_first_pcm_ready(self, event: Any, d: Driver) -> None:
        assert event["fragment"] in self.open

    def _on_fragment_done(self, event: Any, d: Driver) -> None:
        self.open.remove(event["fragment"])
        assert self.last_end <= event["start_ms"] <= event["end_ms"] == self._ms
        self.last_end = event["end_ms"]

    def _on_segment_started(self, event: Any, d: Driver) -> None:
        self.segments_started.add(event["segment_id"])

    def _on_segment_done(self, event: Any, d: Driver) -> None:
        assert event["segment_id"] not in self.segments_done
        assert event["skipped"] or event["segment_id"] in self.segments_started
        self.segments_done.add(event["segment_id"])

    def _on_warning(self, event: Any, d: Driver) -> None:
        assert event["fragment"] in self.open

    def _on_paused(self, event: Any, d: Driver) -> None:
        self.paused = True

    def _on_resumed(self, event: Any, d: Driver) -> None:
        self.paused = False

    def _on_cancelled(self, event: Any, d: Driver) -> None:
        # Perhaps the last one, perhaps with keep_session: `end` looks at what came after it.
        self._spoken(event)

    def _on_done(self, event: Any, d: Driver) -> None:
        self._spoken(event)
        self.over = True
        assert not self.paused

    def _on_error(self, event: Any, d: Driver) -> None:
        self._spoken(event)
        self.over = True
        assert set(event["error"]) == {"message", "type", "param", "code"}
        assert event["error"]["type"] in ERROR_TYPES
        assert event["error"]["message"]

    def _spoken(self, event: Any) -> None:
        assert event["spoken_ms"] == self._ms
        assert event["spoken_chars"] >= 0
        self.last_end = self._ms
        self.open.clear()

    def end(self, d: Driver) -> None:
        if d.closed is not None and d.closed.reason != "send_timeout":
            assert d.out[-1]["type"] in FINAL


class _VllmChecks:
    """What must hold for vLLM-Omni's events: everything is paired and counted."""

    def __init__(self) -> None:
        self.unit: tuple[int, int] | None = None
        self.bytes = 0
        self.utterance = 0
        self.sentence = 0

    def frame(self, frame: Any, d: Driver) -> None:
        if isinstance(frame, bytes):
            assert self.unit is not None, "audio outside of a unit"
            self.bytes += len(frame)
            return
        kind = frame["type"]
        if kind == "audio.start":
            assert self.unit is None
            self.unit = (frame["utterance_index"], frame["sentence_index"])
            assert self.unit == (self.utterance, self.sentence)
            self.bytes = 0
        elif kind == "audio.done":
            assert self.unit == (frame["utterance_index"], frame["sentence_index"])
            assert frame["total_bytes"] == self.bytes
            self.unit = None
            self.sentence += 1
        elif kind == "session.done":
            assert self.unit is None
            assert frame["utterance_index"] == self.utterance
            assert frame["total_sentences"] == self.sentence
            self.utterance += 1
            self.sentence = 0
        else:
            assert kind == "error"
            assert frame["message"]

    def end(self, d: Driver) -> None:
        assert d.closed is not None
