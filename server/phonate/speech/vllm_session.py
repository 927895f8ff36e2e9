"""vLLM-Omni's WebSocket (/v1/audio/speech/stream) as a translation over the same session.

What its clients send and expect, as its own handler describes it (autumn 2026):

    -> session.config  first; stays; again between utterances. Fields of the HTTP API, and
                       split_granularity none (default) | sentence | clause, stream_audio
    -> input.text      added to the utterance
    -> input.done      speak what is left; the connection stays open
    -> session.close   the end of the connection
    <- audio.start     utterance_index, sentence_index, sentence_text, format, sample_rate, channels
    <- binary          stream_audio: s16le as it is made; otherwise one file per sentence
    <- audio.done      utterance_index, sentence_index, total_bytes, error
    <- session.done    utterance_index, total_sentences; after each input.done
    <- error           message; the connection stays open, except before the first config

With split_granularity none an utterance is one unit (sentence 0 of 1), begun at input.done.

Differences, on purpose: files are WAV only (response_format wav, their default, or pcm);
stream_audio always means raw PCM, and audio.start says so; word_timestamps is refused, since
there is no aligner; limits and timeouts are ours. Each utterance is a segment of the session.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Annotated

from phonate.audio import wav
from phonate.errors import (
    InvalidRequest,
    PhonateError,
    RateLimited,
    TooLarge,
    UnsupportedOperation,
)
from phonate.speech.fields import Switch, one_of, read
from phonate.speech.fragments import Clauses
from phonate.speech.session import Session
from phonate.speech.session_events import (
    SAMPLE_RATE,
    CloseCode,
    Command,
    Config,
    Event,
    Plan,
    Text,
    decode,
)
from phonate.speech.session_moves import State

MAX_FILE_BYTES = 64 * 2**20
"""A unit that is sent whole has to be kept whole: 23 minutes."""

_CLAUSES: dict[str, Clauses] = {"none": "never", "sentence": "never", "clause": "always"}


class VllmConfig(Config):
    """session.config; response_format is checked here, and is "pcm" inside."""

    response_format: Annotated[str | None, one_of("wav", "pcm")] = None
    split_granularity: Annotated[str | None, one_of("none", "sentence", "clause")] = None
    stream_audio: Switch = None
    word_timestamps: Switch = None


@dataclass
class _Utterance:
    """A config may come while earlier utterances are still spoken as they were asked for."""

    config: VllmConfig
    text: str = ""
    """The whole of it, with granularity none."""

    @property
    def whole(self) -> bool:
        """It is one unit."""
        return self.config.split_granularity in (None, "none")

    @property
    def format(self) -> str:
        return "pcm" if self.config.stream_audio else (self.config.response_format or "wav")


@dataclass
class _Unit:
    """What is between audio.start and audio.done."""

    text: str
    n_bytes: int = 0
    failed: bool = False
    started: bool = False


class VllmSession:
    """The interface of `Session` towards the shell, with vLLM-Omni's events. The engine's notices
    go to the inner session, which must be new and not be used otherwise."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._config = self._wanted = VllmConfig()
        self._asked: deque[_Utterance] = deque()
        """What is still to be spoken, oldest first."""
        self._deferred: deque[str] = deque()
        self._out: deque[Event | bytes] = deque()
        self._buffer: list[str] = []
        self._buffered_bytes = 0
        self._open = False
        """Text of an utterance came, its input.done did not."""
        self._segment = 0
        self._utterance = 0
        """Index of the utterance that is being spoken."""
        self._sentence = 0
        self._unit: _Unit | None = None
        self._sound: list[bytes] = []
        self._inner_in_flight = False

    # The client -------------------------------------------------------------------------------

    def receive(self, frame: str, now: float) -> None:
        if self._session.state in (State.ENDING, State.CLOSING, State.CLOSED):
            return
        if self._session.state is State.CONFIGURING:
            if len(self._deferred) < self._session.limits.max_deferred:
                self._deferred.append(frame)
            return
        try:
            if len(frame) > self._session.limits.max_frame_bytes:
                raise TooLarge(
                    f"A message has at most {self._session.limits.max_frame_bytes} bytes."
                )
            self._handle(decode(frame, _EVENTS), now)
        except PhonateError as error:
            if not self._session.configured or isinstance(error, TooLarge):
                self._session.fail(error, now)
            else:
                self._out.append(_error(error.message))
        if len(self._out) > self._session.limits.max_answers:
            self._session.fail(RateLimited("Read before sending on."), now)

    def receive_bytes(self, now: float) -> None:
        self._session.receive_bytes(now)

    def _handle(self, event: Event, now: float) -> None:
        kind = event["type"]
        if kind == "session.config":
            self._configure(event, now)
        elif kind not in _EVENTS:
            raise InvalidRequest(f"Unknown message type: {kind[:60]!r}.", param="type")
        elif self._session.state is State.AWAITING_CONFIG:
            raise InvalidRequest("Expected session.config first.", param="type")
        elif kind == "input.text":
            self._add(read(Text, event).text, now)
        elif kind == "input.done":
            self._done(now)
        else:
            self._end(now)

    def _configure(self, event: Event, now: float) -> None:
        if self._open:
            raise InvalidRequest(
                "session.config cannot come within an utterance: send input.done first."
            )
        config = read(VllmConfig, event)
        if config.word_timestamps:
            raise UnsupportedOperation(
                "word_timestamps: this server has no aligner.", param="word_timestamps"
            )
        inner = {**event, "type": "config", "response_format": "pcm"}
        if config.split_granularity in ("sentence", "clause"):
            # Between units there is no place for audio.
            inner |= {"comma_silence_duration": 0, "sentence_silence_duration": 0}
        self._wanted = config
        self._session.handle(inner, now)

    def config_resolved(self, plan: Plan, now: float) -> None:
        self._config = self._wanted
        self._session.text.clauses = _CLAUSES[self._config.split_granularity or "none"]
        self._session.config_resolved(plan, now)
        self._catch_up(now)

    def config_refused(self, error: PhonateError, now: float) -> None:
        """Not the end, once a config was accepted: that one stays."""
        if not self._session.configured:
            self._session.config_refused(error, now)
            return
        self._out.append(_error(error.message))
        self._session.config_dropped(now)
        self._catch_up(now)

    def _catch_up(self, now: float) -> None:
        while self._deferred and self._session.state is State.OPEN:
            self.receive(self._deferred.popleft(), now)

    def _add(self, text: str, now: float) -> None:
        if not text:
            return
        if self._whole:
            self._buffered_bytes += len(text.encode("utf-8", "surrogatepass"))
            if self._buffered_bytes > self._session.limits.max_text_bytes:
                raise TooLarge("The session's text is too long.", param="text")
            self._buffer.append(text)
            self._open = True
            return
        self._begin(now)
        self._session.handle({"type": "text", "text": text}, now)

    def _begin(self, now: float, text: str = "") -> None:
        if not self._open:
            self._asked.append(_Utterance(self._config, text))
            self._segment += 1
            self._session.handle({"type": "segment_start", "segment_id": self._segment}, now)
            self._open = True

    def _done(self, now: float) -> None:
        if self._whole:
            text = "".join(self._buffer)
            self._buffer.clear()
            self._buffered_bytes = 0
            self._open = False
            self._begin(now, text)
            self._session.handle({"type": "text", "text": text}, now)
        self._begin(now)
        self._session.handle({"type": "flush", "segment_id": self._segment}, now)
        self._open = False

    def _end(self, now: float) -> None:
        """What was asked for is still spoken; an utterance without its input.done is not."""
        if self._open and not self._whole:
            self._session.handle({"type": "skip_segment", "segment_id": self._segment}, now)
        self._session.handle({"type": "end"}, now)

    @property
    def _whole(self) -> bool:
        """The utterance that is being written is kept until its input.done."""
        return _Utterance(self._config).whole

    def drain(self, now: float, within_s: float, *, tell: bool = True) -> None:
        """Their protocol has no word for it: what was asked for is spoken, the close says it."""
        if self._session.state is State.OPEN and self._open and not self._whole:
            self._session.handle({"type": "skip_segment", "segment_id": self._segment}, now)
        self._session.drain(now, within_s, tell=False)

    # Out --------------------------------------------------------------------------------------

    def next_frame(self, now: float) -> Event | bytes | None:
        while not self._out:
            frame = self._session.next_frame(now)
            if frame is None:
                return None
            try:
                if isinstance(frame, bytes):
                    self._on_pcm(frame)
                else:
                    self._translate(frame)
            except PhonateError as error:
                self._session.fail(error, now)
            if not self._out:
                self._session.frame_sent(now)
                continue
            self._inner_in_flight = True
        return self._out.popleft()

    def frame_sent(self, now: float) -> None:
        if self._inner_in_flight and not self._out:
            self._inner_in_flight = False
            self._session.frame_sent(now)

    def _translate(self, event: Event) -> None:
        kind = event["type"]
        if kind == "fragment_ready":
            self._on_fragment(event["text"])
        elif kind == "warning" and self._unit is not None:
            self._on_warning(self._unit, event["message"])
        elif kind == "fragment_done" and not self._asked[0].whole:
            self._finish_unit(self._asked[0])
        elif kind == "segment_done":
            self._on_segment_done(event["skipped"])
        elif kind == "error":
            self._out.append(_error(event["message"]))

    def _on_fragment(self, text: str) -> None:
        if self._unit is not None:
            return
        utterance = self._asked[0]
        self._unit = _Unit(utterance.text if utterance.whole else text)
        if not utterance.config.stream_audio:
            self._start(self._unit)

    def _on_pcm(self, pcm: bytes) -> None:
        unit = self._unit
        if unit is None:
            return
        self._start(unit)
        if self._asked[0].config.stream_audio:
            unit.n_bytes += len(pcm)
            self._out.append(pcm)
            return
        unit.n_bytes += len(pcm)
        if unit.n_bytes > MAX_FILE_BYTES:
            self._sound.clear()
            raise TooLarge(
                f"A file has at most {MAX_FILE_BYTES} bytes: use stream_audio, or "
                "split_granularity, or send less before input.done."
            )
        self._sound.append(pcm)

    def _on_warning(self, unit: _Unit, message: str) -> None:
        unit.failed = True
        self._start(unit)
        error = _error(
            f"Generation failed for utterance {self._utterance}, sentence {self._sentence}: "
            f"{message}"
        )
        if unit.n_bytes:
            error |= {"partial_audio": True, "action": "discard"}
        self._out.append(error)

    def _on_segment_done(self, skipped: bool) -> None:
        utterance = self._asked[0]
        if utterance.whole or skipped:
            self._finish_unit(utterance)
        self._asked.popleft()
        if skipped:
            return
        self._out.append(
            {
                "type": "session.done",
                "utterance_index": self._utterance,
                "total_sentences": self._sentence,
            }
        )
        self._utterance += 1
        self._sentence = 0

    def _start(self, unit: _Unit) -> None:
        if unit.started:
            return
        unit.started = True
        self._out.append(
            {
                "type": "audio.start",
                "utterance_index": self._utterance,
                "sentence_index": self._sentence,
                "sentence_text": unit.text,
                "format": self._asked[0].format,
                "sample_rate": SAMPLE_RATE,
                "channels": 1,
            }
        )

    def _finish_unit(self, utterance: _Utterance) -> None:
        unit, self._unit = self._unit, None
        if unit is None:
            return
        self._start(unit)
        pcm = b"".join(self._sound)
        self._sound.clear()
        if pcm:
            sound = pcm if utterance.format == "pcm" else wav.header(SAMPLE_RATE, len(pcm)) + pcm
            unit.n_bytes = len(sound)
            self._out.append(sound)
        self._out.append(
            {
                "type": "audio.done",
                "utterance_index": self._utterance,
                "sentence_index": self._sentence,
                "total_bytes": unit.n_bytes,
                "error": unit.failed,
            }
        )
        self._sentence += 1

    # Handed through ---------------------------------------------------------------------------

    def disconnected(self, now: float) -> None:
        self._out.clear()
        self._session.disconnected(now)

    def fail(self, error: PhonateError, now: float, code: CloseCode | None = None) -> None:
        self._session.fail(error, now, code)

    def tick(self, now: float) -> None:
        self._session.tick(now)

    def next_deadline(self) -> float | None:
        return self._session.next_deadline()

    def take_commands(self) -> list[Command]:
        return self._session.take_commands()


_EVENTS = ("session.config", "input.text", "input.done", "session.close")


def _error(message: str) -> Event:
    return {"type": "error", "message": message}
