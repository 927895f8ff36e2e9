"""From fragments of text to audio in the outbox, one fragment at a time, in order.

The session puts fragments and segment borders in; the pipeline asks for syntheses when the engine
is free, and turns the engine's notices into PCM and events. It knows nothing of sockets, pausing
or deadlines of clients. A notice about a fragment that is no longer wanted changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Protocol, TypeAlias

from phonate.errors import EngineFailure, PhonateError
from phonate.speech.fragments import End
from phonate.speech.outbox import Outbox, Voicing
from phonate.speech.session_events import (
    AUDIO,
    SAMPLE_RATE,
    CancelEngine,
    Command,
    Event,
    Plan,
    Route,
    StartFragment,
)

ROUTING_WORDS = 3
"""So many more words at most are waited for before a first fragment's language is decided."""


class Say(Protocol):
    """Makes an event of the session: its type, its ids, and `fields`."""

    def __call__(self, type_: str, /, **fields: object) -> Event: ...


class Work(Enum):
    """What is being done about the fragment at the head."""

    IDLE = "idle"
    ROUTING = "routing"
    SYNTHESIZING = "synthesizing"


class Segment(Enum):
    """A segment that is not done yet."""

    QUEUED = "queued"
    ACTIVE = "active"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Piece:
    """One fragment to speak. `text` is exact and for events; `speech` is for the engine."""

    text: str
    speech: str
    ended: End
    pause_s: float
    """Silence that belongs after it when another fragment follows."""
    plan: Plan
    first: bool
    """The first one since the session began or was flushed."""
    text_at: float
    """When the first text since then came."""
    segment: int | None = None


@dataclass(frozen=True, slots=True)
class SegmentBegin:
    segment: int


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    segment: int


_Queued: TypeAlias = Piece | SegmentBegin | SegmentEnd


@dataclass(eq=False, slots=True)
class _Current:
    """The fragment that is worked on."""

    piece: Piece
    voicing: Voicing
    asked_at: float
    deadline: float | None = None
    """While routing: when to stop waiting for more words."""


@dataclass(eq=False)
class Pipeline:
    """See the module's text.

    held: the text that waits in the splitter, for a look at the words to come.
    """

    outbox: Outbox
    say: Say
    command: Callable[[Command], None]
    held: Callable[[], str]
    max_failures: int = 3
    work: Work = Work.IDLE
    segments: dict[int, Segment] = field(default_factory=dict)
    playing_until: float = 0.0
    """When a client that plays what it gets at once falls silent; kept by the session."""
    _queue: deque[_Queued] = field(default_factory=deque)
    _current: _Current | None = None
    _next_index: int = 0
    _failures: int = 0
    _before: Piece | None = None
    """The last piece that was heard."""

    @property
    def idle(self) -> bool:
        """Nothing to speak. Audio may still wait in the outbox."""
        return self.work is Work.IDLE and not self._queue

    @property
    def deadline(self) -> float | None:
        return self._current.deadline if self._current is not None else None

    # From the session -------------------------------------------------------------------------

    def add(self, item: _Queued) -> None:
        if isinstance(item, SegmentBegin):
            self.segments[item.segment] = Segment.QUEUED
        self._queue.append(item)

    def advance(self, now: float, *, may_start: bool) -> None:
        """Do what can be done now. `may_start`: the engine is not to stand still."""
        if may_start and self.work is Work.ROUTING:
            self._route_again(now)
        while may_start and self.work is Work.IDLE and self._queue:
            item = self._queue.popleft()
            if isinstance(item, Piece):
                self._begin(item, now)
            elif isinstance(item, SegmentBegin):
                self._begin_segment(item.segment)
            else:
                self.outbox.add_event(partial(self._segment_done, item.segment), item.segment)

    def skip(self, segment: int) -> None:
        """Stop an active segment, pass over a queued one; nothing for one that is done."""
        state = self.segments.get(segment)
        if state is None or state is Segment.SKIPPED:
            return
        self.segments[segment] = Segment.SKIPPED
        self._queue = deque(
            item
            for item in self._queue
            if isinstance(item, SegmentBegin) or item.segment != segment
        )
        if self._current is not None and self._current.piece.segment == segment:
            self._abort("skipped")
        if state is Segment.ACTIVE:
            self.outbox.drop_segment(segment, self._cut_off, partial(self._segment_done, segment))

    def stop(self, reason: str) -> None:
        """Drop everything: queue, synthesis, audio that waits."""
        self._queue.clear()
        self.segments.clear()
        self._abort(reason)
        self.outbox.clear()
        self._before = None

    # From the engine --------------------------------------------------------------------------

    def is_current(self, fragment: int) -> bool:
        """Whether a notice about `fragment` still matters."""
        return self._match(fragment) is not None

    def engine_started(self, fragment: int, now: float) -> None:
        """It left the queue; the clock of synthesis_to_first_pcm_ms starts."""
        current = self._match(fragment)
        if current is not None:
            current.asked_at = now

    def engine_audio(self, fragment: int, pcm: bytes, now: float) -> None:
        current = self._match(fragment)
        if current is None or not pcm:
            return
        voicing = current.voicing
        if not voicing.made:
            self.outbox.add_silence(self._silence_before(now), voicing.segment)
            ms = round((now - current.asked_at) * 1000, 1)
            event = partial(
                self._about,
                voicing,
                "first_pcm_ready",
                audio=AUDIO,
                timings={"synthesis_to_first_pcm_ms": ms},
            )
            self.outbox.add_event(event, voicing.segment)
        self.outbox.add_pcm(pcm, voicing)

    def engine_done(self, fragment: int, finish_reason: str) -> None:
        """It came to its end; without any audio it was silent, and the client is warned."""
        current = self._match(fragment)
        if current is None:
            return
        self._failures = 0
        current.voicing.complete = True
        if not current.voicing.made:
            finish_reason = "silent"
            self._warn(current, "The fragment was silent: nothing audible was made.", "silent")
        self._end(current, finish_reason)

    def engine_failed(self, fragment: int, error: PhonateError) -> None:
        """A warning; raises `error` when fragments fail one after the other."""
        current = self._match(fragment)
        if current is None:
            return
        self._failures += 1
        if self._failures >= self.max_failures:
            if isinstance(error, EngineFailure):
                error.message = f"{self._failures} fragments in a row failed. {error.message}"
            raise error
        self._warn(current, f"The fragment failed: {error.message}", error.code)
        self._end(current, "error")

    # Inside -----------------------------------------------------------------------------------

    def _begin(self, piece: Piece, now: float) -> None:
        voicing = Voicing(self._next_index, piece.text, piece.segment)
        self._next_index += 1
        self._current = _Current(piece, voicing, now)
        if piece.plan.route is None:
            self._start(Route(piece.plan.what, piece.plan.language), now)
            return
        route = piece.plan.route(piece.text)
        no_more_to_come = not piece.first or piece.ended in (End.FLUSH, End.END)
        if route.wait_s <= 0 or no_more_to_come:
            self._start(route, now)
            return
        self.work = Work.ROUTING
        self._current.deadline = now + route.wait_s
        self._route_again(now)

    def _route_again(self, now: float) -> None:
        """More words came, or the time for them is over."""
        current = self._current
        assert current is not None
        assert current.deadline is not None
        assert current.piece.plan.route is not None
        ahead = "".join(i.text for i in self._queue if isinstance(i, Piece)) + self.held()
        enough = len(ahead.split(maxsplit=ROUTING_WORDS)) > ROUTING_WORDS
        # A border in the queue (end, flush, segment) means that no further word belongs here.
        closed = any(
            not isinstance(i, Piece) or i.ended in (End.FLUSH, End.END) for i in self._queue
        )
        if enough or closed or now >= current.deadline:
            current.deadline = None
            self._start(current.piece.plan.route(current.piece.text + ahead), now)

    def _start(self, route: Route, now: float) -> None:
        current = self._current
        assert current is not None
        piece, voicing = current.piece, current.voicing
        self.work = Work.SYNTHESIZING
        extra = {"language": route.language, "voice": route.voice}
        event = partial(
            self._about,
            voicing,
            "fragment_ready",
            audio=AUDIO,
            timings={"first_text_to_fragment_ms": round((now - piece.text_at) * 1000, 1)},
            **{key: value for key, value in extra.items() if value is not None},
        )
        self.outbox.add_event(event, piece.segment)
        current.asked_at = now
        silent = now >= self.playing_until
        self.command(StartFragment(voicing.index, piece.speech, route.plan, first=silent))

    def _match(self, fragment: int) -> _Current | None:
        current = self._current
        wanted = self.work is Work.SYNTHESIZING and current is not None
        return current if wanted and current and current.voicing.index == fragment else None

    def _silence_before(self, now: float) -> int:
        """Samples of pause after the piece before. A client that was flushed and has long played
        everything out is not kept waiting by it."""
        before = self._before
        if before is None or (before.ended is End.FLUSH and now >= self.playing_until):
            return 0
        return round(before.pause_s * SAMPLE_RATE)

    def _about(self, voicing: Voicing, type_: str, /, **fields: object) -> Event:
        """An event about a fragment."""
        segment = {} if voicing.segment is None else {"segment_id": voicing.segment}
        return self.say(type_, fragment=voicing.index, text=voicing.text, **segment, **fields)

    def _warn(self, current: _Current, message: str, code: str | None) -> None:
        event = partial(self._about, current.voicing, "warning", message=message, code=code)
        self.outbox.add_event(event, current.piece.segment)

    def _end(self, current: _Current, finish_reason: str) -> None:
        if current.voicing.made:
            self._before = current.piece
        self._current = None
        self.work = Work.IDLE
        self.outbox.add_done(
            current.voicing, partial(self._fragment_done, current.voicing, finish_reason)
        )

    def _fragment_done(self, voicing: Voicing, reason: str, start_ms: int, end_ms: int) -> Event:
        return self._about(
            voicing, "fragment_done", start_ms=start_ms, end_ms=end_ms, finish_reason=reason
        )

    def _cut_off(self, voicing: Voicing, start_ms: int, end_ms: int) -> Event:
        return self._fragment_done(voicing, "cancelled", start_ms, end_ms)

    def _begin_segment(self, segment: int) -> None:
        if self.segments.get(segment) is Segment.SKIPPED:
            self.outbox.add_event(partial(self._segment_done, segment), segment)
            return
        self.segments[segment] = Segment.ACTIVE
        self.outbox.add_event(partial(self.say, "segment_started", segment_id=segment), segment)

    def _segment_done(self, segment: int) -> Event:
        skipped = self.segments.pop(segment, None) is Segment.SKIPPED
        return self.say("segment_done", segment_id=segment, skipped=skipped)

    def _abort(self, reason: str) -> None:
        if self.work is Work.SYNTHESIZING:
            self.command(CancelEngine(reason))
        self.work = Work.IDLE
        self._current = None
