"""One WebSocket session as a state machine: no socket, no await, no clock of its own.

    session = Session(session_id=..., request_id=..., now=now)
    session.receive(frame, now)                 what the client sent
    session.engine_audio(3, pcm, now)           what the engine did (see `session_events`)
    session.tick(now)                           at `session.next_deadline()`, at the latest
    for command in session.take_commands(): ... what the engine and the socket shall do
    while (out := session.next_frame(now)) is not None:
        ...                                     a dict is a JSON frame, bytes are PCM
        session.frame_sent(now)                 the transport took it

Every method may be called in every state; what comes too late changes nothing.

                     config               resolved       end            last audio sent
    AWAITING_CONFIG ---------> CONFIGURING ---------> OPEN ----> ENDING ----------------> CLOSING
                                     ^-------config-----'                                   |
    and from each of them: cancel, an error, a deadline -----------------> CLOSING          |
    and when the client is gone ----------> CLOSED <--------------- frame_sent -------------'

A server that stops says `draining`: as if the client had sent `end`, but closed with 1012.
While CONFIGURING, events wait and are handled afterwards, in order; only cancel does not wait.

Independent of that is the flow of audio: RUNNING, PAUSING (asked for, the engine still moves),
PAUSED. And the engine's gate: shut while not RUNNING, and while too much PCM waits for the client.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from phonate.errors import (
    Busy,
    InvalidRequest,
    NotReady,
    PhonateError,
    RateLimited,
    Timeout,
    TooLarge,
)
from phonate.speech.fields import read
from phonate.speech.outbox import Outbox
from phonate.speech.pipeline import Piece, Pipeline, SegmentBegin, SegmentEnd
from phonate.speech.session_events import (
    AUDIO,
    BYTES_PER_SAMPLE,
    CLIENT_EVENTS,
    SAMPLE_RATE,
    Bare,
    Cancel,
    Close,
    CloseCode,
    Command,
    Config,
    Event,
    Flush,
    Plan,
    Resolve,
    SegmentStart,
    SessionLimits,
    SkipSegment,
    Text,
    close_code,
    decode,
    error_fields,
)
from phonate.speech.session_flow import Flow, FlowControl
from phonate.speech.session_moves import DEFER, MOVES, NO_MORE, NOT_NOW, State
from phonate.speech.session_text import TextIntake

Miss: TypeAlias = Callable[[float], None]
"""What happens when a deadline passes."""


class Session:
    """See the module's text. Times are seconds on any one clock, given as `now`."""

    def __init__(
        self,
        *,
        session_id: str,
        request_id: str,
        now: float,
        limits: SessionLimits | None = None,
    ) -> None:
        self.session_id = session_id
        self.request_id = request_id
        self.limits = limits or SessionLimits()
        self.state = State.AWAITING_CONFIG
        self._wanted = Config()
        """The one that is being resolved."""
        self._configured = False
        self._deferred: deque[Event] = deque()
        self._outbox = Outbox()
        self._commands: list[Command] = []
        self.text = TextIntake(self.limits)
        self._pipeline = Pipeline(
            self._outbox,
            self._say,
            self._commands.append,
            lambda: self.text.held,
            self.limits.max_failures,
        )
        self._flow = FlowControl(
            self._outbox,
            lambda answer: self._outbox.add_answer(self._say(answer)),
            self._commands.append,
            self.limits.buffer_s,
        )
        self._open_segment: int | None = None
        self._last_segment = 0
        self._dropping = False
        """The open segment was skipped: its further text is dropped."""
        self._active_at = now
        self._sending_since: float | None = None
        self._close: Close | None = None
        self._draining = False

    # What the shell takes ---------------------------------------------------------------------

    def take_commands(self) -> list[Command]:
        """What to do now, oldest first; each is given out once."""
        commands, self._commands[:] = list(self._commands), []
        return commands

    def next_frame(self, now: float) -> Event | bytes | None:
        """The next thing to send, None when there is nothing or nothing may go. Call
        `frame_sent` before asking again."""
        frame = self._outbox.pop()
        if frame is None:
            return None
        self._sending_since = now
        if isinstance(frame, bytes):
            seconds = len(frame) / BYTES_PER_SAMPLE / SAMPLE_RATE
            self._pipeline.playing_until = max(now, self._pipeline.playing_until) + seconds
        return frame

    def frame_sent(self, now: float) -> None:
        """The transport took the frame."""
        self._sending_since = None
        self._active_at = now
        if self.state is State.CLOSING and not len(self._outbox):
            self.state = State.CLOSED
            if self._close is not None:
                self._commands.append(self._close)
            return
        self._advance(now)

    def next_deadline(self) -> float | None:
        """When `tick` must be called at the latest, None for never."""
        return min((at for at, _ in self._deadlines()), default=None)

    def tick(self, now: float) -> None:
        for at, miss in self._deadlines():
            if now >= at:
                miss(now)
                break
        self._advance(now)

    # What the client does ---------------------------------------------------------------------

    def receive(self, frame: str, now: float) -> None:
        """A text frame."""
        if self.state not in MOVES:
            return
        try:
            if len(frame) * 4 > self.limits.max_frame_bytes:
                self._check_size(frame)
            event = decode(frame)
            if not (self._draining and event["type"] in NO_MORE):
                self.handle(event, now)
        except PhonateError as error:
            self.fail(error, now)

    def receive_bytes(self, now: float) -> None:
        """A binary frame, which no event is."""
        self.fail(InvalidRequest("Send JSON text frames; binary frames are not understood."), now)

    def handle(self, event: Event, now: float) -> None:
        """A decoded event. Raises from the `errors` tree; `receive` turns that into the end."""
        moves = MOVES.get(self.state)
        if moves is None:
            return
        self._active_at = now
        name = event["type"]
        model = CLIENT_EVENTS.get(name)
        if model is None:
            raise InvalidRequest(
                f"There is no event {name[:60]!r}. Known: {', '.join(CLIENT_EVENTS)}.",
                param="type",
                code="unknown_event",
            )
        if name not in moves:
            raise InvalidRequest(
                f"{name!r} cannot be sent now. {NOT_NOW[self.state]}",
                param="type",
                code="unexpected_event",
            )
        fields = read(model, event)
        if moves[name] == DEFER:
            self._defer(event)
            return
        getattr(self, moves[name])(fields, now)
        self._advance(now)
        if self._outbox.answers > self.limits.max_answers:
            raise RateLimited(
                f"{self.limits.max_answers} answers wait to be read: read before asking on.",
                retry_after_s=1,
            )

    def disconnected(self, now: float) -> None:
        """The client is gone. Nothing more is sent."""
        if self.state is State.CLOSED:
            return
        self._stop("client_gone", now)
        self._outbox.drop_all()
        self.state = State.CLOSED

    def fail(self, error: PhonateError, now: float, code: CloseCode | None = None) -> None:
        """End the session with an error event. Also for the shell's own failures and shutdown."""
        if self.state not in MOVES:
            return
        self._stop("session_failed", now)
        fields = error_fields(error)
        event = self._say("error", message=error.message, error=fields, **self._outbox.spoken)
        retry_after = getattr(error, "retry_after_s", None)
        if retry_after is not None:
            event["retry_after_s"] = retry_after
        self._finish(event, code or close_code(error), error.code or error.type)

    def drain(self, now: float, within_s: float, *, tell: bool = True) -> None:
        """The server stops: speak what is here, take no more, and end. `tell`: with an event."""
        if self.state not in MOVES:
            return
        if self.state is State.AWAITING_CONFIG:
            stopping = NotReady("The server is shutting down. Connect again.", retry_after_s=5)
            self.fail(stopping, now, CloseCode.RESTART)
            return
        self._draining = True
        if tell:
            self._outbox.add_answer(self._say("draining", finish_within_s=within_s))
        if self.state is State.OPEN:
            self._on_end(Bare(), now)
        self._advance(now)

    # What the shell found out -----------------------------------------------------------------

    def config_resolved(self, plan: Plan, now: float) -> None:
        """The answer to Resolve: the config holds from here on."""
        if self.state is not State.CONFIGURING:
            return
        self._configured = True
        self._add(self.text.configure(self._wanted, plan, now))
        ready = self._say("ready", audio=AUDIO, limits=self.limits.describe(), **plan.about)
        self._outbox.add_answer(ready)
        self._reopen(now)

    def config_refused(self, error: PhonateError, now: float) -> None:
        """The answer to Resolve: the config does not fit this server."""
        if self.state is State.CONFIGURING:
            self.fail(error, now)

    def config_dropped(self, now: float) -> None:
        """Go on as before the config that was refused, for a protocol that is lenient there."""
        if self.state is State.CONFIGURING and self._configured:
            self._reopen(now)

    @property
    def flow(self) -> Flow:
        """Whether audio flows."""
        return self._flow.flow

    @property
    def configured(self) -> bool:
        """A config was accepted once."""
        return self._configured

    def _reopen(self, now: float) -> None:
        self.state = State.OPEN
        try:
            while self._deferred and self.state in (State.OPEN, State.ENDING):
                self.handle(self._deferred.popleft(), now)
            if self._draining and self.state is State.OPEN:
                self._on_end(Bare(), now)
        except PhonateError as error:
            self.fail(error, now)
        self._advance(now)

    def _defer(self, event: Event) -> None:
        if len(self._deferred) >= self.limits.max_deferred:
            raise RateLimited("Too many events wait for the config to be accepted: await 'ready'.")
        self._deferred.append(event)

    # What the engine does ---------------------------------------------------------------------

    def engine_started(self, fragment: int, now: float) -> None:
        """The fragment got its turn at the engine."""
        self._pipeline.engine_started(fragment, now)

    def engine_audio(self, fragment: int, pcm: bytes, now: float) -> None:
        """A chunk of s16le audio at SAMPLE_RATE, whole samples."""
        self._active_at = now
        self._pipeline.engine_audio(fragment, pcm, now)
        self._advance(now)

    def engine_done(self, fragment: int, finish_reason: str, now: float) -> None:
        """The fragment is complete: stop or length."""
        self._active_at = now
        self._pipeline.engine_done(fragment, finish_reason)
        self._advance(now)

    def engine_failed(self, fragment: int, error: PhonateError, now: float) -> None:
        """The fragment failed. One failure is a warning; a full queue ends the session."""
        self._active_at = now
        if isinstance(error, (Busy, RateLimited, Timeout)):
            if self._pipeline.is_current(fragment):
                self.fail(error, now)
            return
        try:
            self._pipeline.engine_failed(fragment, error)
        except PhonateError as last:
            self.fail(last, now)
        self._advance(now)

    def engine_quiescent(self, serial: int, now: float) -> None:
        """The engine stands still (or has nothing to do) since PauseEngine number `serial`."""
        self._flow.engine_still(serial)
        self._advance(now)

    # Client events ----------------------------------------------------------------------------

    def _on_config(self, config: Config, now: float) -> None:
        if self.text.held.strip():
            raise InvalidRequest(
                "A config may come between utterances: flush the text that was sent first.",
                param="type",
                code="config_within_text",
            )
        first = self.state is State.AWAITING_CONFIG
        if config.session_id is not None and not first and config.session_id != self.session_id:
            raise InvalidRequest(
                f"session_id is {self.session_id!r} and cannot change within a session.",
                param="session_id",
            )
        self._wanted = config
        self.session_id = config.session_id or self.session_id
        self.state = State.CONFIGURING
        self._commands.append(Resolve(config))

    def _on_text(self, event: Text, now: float) -> None:
        pieces = self.text.feed(event.text, self._open_segment, now, drop=self._dropping)
        self._add(pieces)

    def _on_flush(self, event: Flush, now: float) -> None:
        wanted = event.segment_id
        if wanted is None or wanted == self._open_segment:
            self._flush(now)
            if wanted is not None:
                self._close_segment()
        elif wanted > self._last_segment:
            raise InvalidRequest(
                f"segment_id {wanted} was never started; the last one is {self._last_segment}.",
                param="segment_id",
                code="unknown_segment",
            )

    def _on_segment_start(self, event: SegmentStart, now: float) -> None:
        if self._open_segment is not None:
            raise InvalidRequest(
                f"Segment {self._open_segment} is still open: send flush with its segment_id.",
                param="segment_id",
                code="segment_open",
            )
        if event.segment_id <= self._last_segment:
            raise InvalidRequest(
                f"segment_id must be above {self._last_segment}, the last one, not "
                f"{event.segment_id}.",
                param="segment_id",
                code="segment_order",
            )
        if len(self._pipeline.segments) >= self.limits.max_segments:
            raise RateLimited(
                f"{self.limits.max_segments} segments wait to be spoken. Send more when some are.",
            )
        self._flush(now)
        self._open_segment = self._last_segment = event.segment_id
        self._pipeline.add(SegmentBegin(event.segment_id))

    def _on_skip_segment(self, event: SkipSegment, now: float) -> None:
        wanted = event.segment_id
        if wanted > self._last_segment:
            raise InvalidRequest(
                f"segment_id {wanted} was never started; the last one is {self._last_segment}.",
                param="segment_id",
                code="unknown_segment",
            )
        self._pipeline.skip(wanted)
        if wanted == self._open_segment:
            self._dropping = True
            self.text.forget()

    def _on_pause(self, event: Bare, now: float) -> None:
        self._flow.pause(now)

    def _on_resume(self, event: Bare, now: float) -> None:
        self._flow.resume()

    def _on_cancel(self, event: Cancel, now: float) -> None:
        self._stop("cancelled", now)
        cancelled = self._say("cancelled", reason="client", **self._outbox.spoken)
        if not event.keep_session:
            self._finish(cancelled, CloseCode.NORMAL, "cancelled")
            return
        if self.state is State.ENDING and not self._draining:
            self.state = State.OPEN
        self._outbox.add_answer(cancelled)

    def _on_end(self, event: Bare, now: float) -> None:
        self._flush(now, last=True)
        self._close_segment()
        self.state = State.ENDING

    def _on_nothing(self, event: Bare, now: float) -> None:
        """Fine, and already the case."""

    # Inside -----------------------------------------------------------------------------------

    def _add(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            self._pipeline.add(piece)

    def _flush(self, now: float, *, last: bool = False) -> None:
        if self._dropping:
            self.text.forget()
        else:
            self._add(self.text.flush(self._open_segment, now, last=last))

    def _close_segment(self) -> None:
        if self._open_segment is not None and not self._dropping:
            self._pipeline.add(SegmentEnd(self._open_segment))
        self._open_segment = None
        self._dropping = False

    def _advance(self, now: float) -> None:
        """After every change: whatever has become possible."""
        if self.state not in MOVES:
            return
        self._flow.advance()
        self._pipeline.advance(now, may_start=not self._flow.gate_shut)
        silent = self._pipeline.idle and not len(self._outbox)
        if self.state is State.ENDING and silent and self._flow.flow is Flow.RUNNING:
            done = self._say("done", **self._outbox.spoken)
            if self._draining:
                self._finish(done, CloseCode.RESTART, "shutdown")
            else:
                self._finish(done, CloseCode.NORMAL, "done")

    # Deadlines and ends -----------------------------------------------------------------------

    def _deadlines(self) -> list[tuple[float, Miss]]:
        limits, found = self.limits, list[tuple[float, Miss]]()
        if self.state is State.CLOSED:
            return found
        if self._sending_since is not None:
            found.append((self._sending_since + limits.send_timeout_s, self._miss_send))
        if self.state is State.AWAITING_CONFIG:
            found.append((self._active_at + limits.config_timeout_s, self._miss_config))
        elif self.state is not State.CLOSING and self._flow.flow is not Flow.RUNNING:
            found.append((self._flow.paused_at + limits.pause_timeout_s, self._miss_resume))
        elif self.state is State.OPEN and self._pipeline.idle and not len(self._outbox):
            found.append((self._active_at + limits.idle_timeout_s, self._miss_activity))
        if self._pipeline.deadline is not None and not self._flow.gate_shut:
            found.append((self._pipeline.deadline, self._advance))
        return found

    def _miss_config(self, now: float) -> None:
        seconds = f"{self.limits.config_timeout_s:g}"
        error = Timeout(f"No config event came within {seconds} s.", code="config_timeout")
        self.fail(error, now, CloseCode.POLICY)

    def _miss_activity(self, now: float) -> None:
        seconds = f"{self.limits.idle_timeout_s:g}"
        error = Timeout(f"The session was idle for {seconds} s.", code="idle_timeout")
        self.fail(error, now, CloseCode.POLICY)

    def _miss_resume(self, now: float) -> None:
        self._stop("pause_timeout", now)
        event = self._say("cancelled", reason="pause_timeout", **self._outbox.spoken)
        self._finish(event, CloseCode.NORMAL, "pause_timeout")

    def _miss_send(self, now: float) -> None:
        """The client does not read, so it cannot be told either."""
        self._stop("send_timeout", now)
        self._outbox.drop_all()
        self.state = State.CLOSED
        self._commands.append(Close(CloseCode.POLICY, "send_timeout"))

    def _stop(self, reason: str, now: float) -> None:
        self._pipeline.stop(reason)
        self._open_segment = None
        self._dropping = False
        self._deferred.clear()
        self.text.forget()

    def _finish(self, event: Event, code: CloseCode, reason: str) -> None:
        self._outbox.add_answer(event)
        self._close = Close(code, reason)
        self.state = State.CLOSING

    def _check_size(self, frame: str) -> None:
        size = len(frame.encode("utf-8", "surrogatepass"))
        if size > self.limits.max_frame_bytes:
            raise TooLarge(
                f"A frame has at most {self.limits.max_frame_bytes} bytes, not {size}. "
                "Send the text in pieces.",
                code="frame_too_large",
            )

    def _say(self, type_: str, /, **fields: object) -> Event:
        ids = {"session_id": self.session_id, "request_id": self.request_id}
        return {"type": type_, **ids, **fields}
