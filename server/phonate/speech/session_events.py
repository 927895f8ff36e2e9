"""The words of the WebSocket protocol: what a client may send, what the session asks of its shell.

The fields of client events, their limits, and the close codes live here; what they do is in
`session`. docs/PROTOCOL.md describes the same for people.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, ConfigDict, WithJsonSchema

from phonate.errors import (
    Cancelled,
    InvalidRequest,
    NotFound,
    PhonateError,
    RateLimited,
    Timeout,
    TooLarge,
    Unauthorized,
    _RetryLater,
)
from phonate.speech.fields import (
    Fields,
    Switch,
    VoiceFields,
    number,
    one_of,
    refuse,
    shown,
    whole_number,
)
from phonate.speech.fragments import DEFAULT_MAX_CHARS

SAMPLE_RATE = 24_000
BYTES_PER_SAMPLE = 2
AUDIO = {"encoding": "s16le", "sample_rate_hz": SAMPLE_RATE, "channels": 1, "bits_per_sample": 16}

_WELL_FORMED_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

Event: TypeAlias = dict[str, Any]
"""A JSON object as it goes over the wire."""


def is_well_formed_id(value: str) -> bool:
    """The shape of session and request ids."""
    return _WELL_FORMED_ID.fullmatch(value) is not None


# What a client sends ------------------------------------------------------------------------------


def _check_session_id(value: object) -> str:
    if not isinstance(value, str) or not is_well_formed_id(value):
        raise refuse(f"must be 1 to 128 of A-Z a-z 0-9 . _ : -, not {shown(value)}.")
    return value


def _check_text(value: object) -> str:
    if not isinstance(value, str):
        raise refuse(f"must be a string, not {shown(value)}.")
    return value


SegmentId = Annotated[
    int,
    whole_number(1, 2**53 - 1, "a whole number, 1 or more"),
    WithJsonSchema({"type": "integer", "minimum": 1}),
]
Seconds = Annotated[
    float | None,
    number(lambda x: 0 <= x <= 10, "a number of seconds from 0 to 10"),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": 10}),
]
MAX_LOOKAHEAD_WORDS = 50


class Config(VoiceFields):
    """Voice and options, complete each time: a field left out has its default again. Further
    fields that HTTP requests have are kept for `Resolve` to judge."""

    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=True)

    response_format: Annotated[str | None, one_of("pcm")] = None
    session_id: Annotated[str | None, BeforeValidator(_check_session_id)] = None
    fragment_lookahead_words: Annotated[
        int | None,
        whole_number(0, MAX_LOOKAHEAD_WORDS, f"a whole number from 0 to {MAX_LOOKAHEAD_WORDS}"),
    ] = None
    comma_silence_duration: Seconds = None
    sentence_silence_duration: Seconds = None


class Text(Fields):
    text: Annotated[str, BeforeValidator(_check_text)]


class Flush(Fields):
    segment_id: SegmentId | None = None


class SegmentStart(Fields):
    segment_id: SegmentId


class SkipSegment(Fields):
    segment_id: SegmentId


class Cancel(Fields):
    keep_session: Switch = None


class Bare(Fields):
    """pause, resume and end carry nothing."""


CLIENT_EVENTS: dict[str, type[Fields]] = {
    "config": Config,
    "text": Text,
    "flush": Flush,
    "segment_start": SegmentStart,
    "skip_segment": SkipSegment,
    "pause": Bare,
    "resume": Bare,
    "cancel": Cancel,
    "end": Bare,
}


def decode(frame: str, known: Iterable[str] = CLIENT_EVENTS) -> Event:
    """A text frame as an object. Raises InvalidRequest."""
    try:
        event = json.loads(frame)
    except (ValueError, RecursionError):
        raise InvalidRequest("The frame is not valid JSON.", code="invalid_json") from None
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        raise InvalidRequest(
            f"A frame must be a JSON object with a string 'type', one of {', '.join(known)}.",
            param="type",
            code="invalid_event",
        )
    return event


# What the session asks of its shell ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Resolve:
    """Look the voice of `config` up (which may take a while: a recording to listen to), then call
    `config_resolved` or `config_refused`."""

    config: Config


@dataclass(frozen=True, slots=True)
class StartFragment:
    """Speak `text` with `plan`; answer with engine_* notices that carry `fragment`."""

    fragment: int
    text: str
    plan: Any
    first: bool
    """Nothing was heard yet since the session was silent: a start-up buffer makes sense."""


@dataclass(frozen=True, slots=True)
class PauseEngine:
    """Make the engine stand still at its next step, then notice `engine_quiescent(serial)`, at
    once when it has nothing to do."""

    serial: int


@dataclass(frozen=True, slots=True)
class ResumeEngine:
    """The opposite."""


@dataclass(frozen=True, slots=True)
class CancelEngine:
    """Stop what was started; its notices are ignored from now on."""

    reason: str


@dataclass(frozen=True, slots=True)
class Close:
    """Close the socket, once everything given out was sent (or at once, when it is stuck)."""

    code: int
    reason: str


Command: TypeAlias = Resolve | StartFragment | PauseEngine | ResumeEngine | CancelEngine | Close


# What the shell knows and the session does not ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Route:
    """Where a fragment goes: what to hand to StartFragment, and how sure that is.

    wait_s: above 0 when a few more words could change the answer (LANGUAGE.md: 0.040..0.120).
    """

    plan: Any
    language: str | None = None
    voice: str | None = None
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """A config that fits the server. `what` is the shell's own and comes back in StartFragment;
    with `route` the answer depends on each fragment's text."""

    what: Any = None
    language: str | None = None
    max_chars: int = DEFAULT_MAX_CHARS
    route: Callable[[str], Route] | None = None
    about: Event = field(default_factory=dict)
    """Further fields of `ready`: the voice and language that were chosen."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """See the options of the same names in `settings`."""

    max_text_bytes: int = 2**20
    max_frame_bytes: int = 64 * 2**10
    config_timeout_s: float = 10.0
    idle_timeout_s: float = 120.0
    pause_timeout_s: float = 60.0
    send_timeout_s: float = 30.0
    buffer_s: float = 30.0
    """PCM that may wait for the client before the engine is held."""
    max_answers: int = 256
    """Answers that may wait for a client that asks without reading."""
    max_segments: int = 10_000
    """Segments that may wait to be spoken."""
    max_deferred: int = 4096
    """Events that may wait for a config to be resolved."""
    max_failures: int = 3
    """So many failed fragments in a row are the server's fault, not the text's."""
    lookahead_words: int = 0
    clause_pause_s: float = 0.15
    sentence_pause_s: float = 0.30

    def describe(self) -> Event:
        """As `ready` tells a client."""
        return {
            "max_text_bytes": self.max_text_bytes,
            "max_frame_bytes": self.max_frame_bytes,
            "idle_timeout_s": self.idle_timeout_s,
            "pause_timeout_s": self.pause_timeout_s,
            "send_timeout_s": self.send_timeout_s,
            "stream_buffer_seconds": self.buffer_s,
        }


class CloseCode(int, Enum):
    NORMAL = 1000
    POLICY = 1008
    SERVER_FAULT = 1011
    RESTART = 1012
    TRY_LATER = 1013


_CLOSE_CODES: tuple[tuple[type[PhonateError], CloseCode], ...] = (
    (_RetryLater, CloseCode.TRY_LATER),
    (Timeout, CloseCode.TRY_LATER),
    (Cancelled, CloseCode.NORMAL),
    (InvalidRequest, CloseCode.POLICY),
    (Unauthorized, CloseCode.POLICY),
    (NotFound, CloseCode.POLICY),
    (TooLarge, CloseCode.POLICY),
    (RateLimited, CloseCode.TRY_LATER),
)


def close_code(error: PhonateError) -> CloseCode:
    """1008 when the client must change something, 1013 when time will help, else 1011."""
    for kind, code in _CLOSE_CODES:
        if isinstance(error, kind):
            return code
    return CloseCode.SERVER_FAULT


def error_fields(error: PhonateError) -> Event:
    """OpenAI's error object."""
    return {
        "message": error.message,
        "type": error.type,
        "param": error.param,
        "code": error.code,
    }
