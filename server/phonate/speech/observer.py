"""Who wants to know how speaking goes. The service tells; metrics and traces listen."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

from phonate.errors import Cancelled, OutputError, PhonateError


@dataclass(frozen=True, slots=True)
class Report:
    """One utterance that has ended. Seconds; None for what did not happen."""

    outcome: str
    """stop, length, cancelled, silent, failed or refused."""
    cause: str
    """Of a cancellation or failure: a short word out of a bounded set; else ""."""
    queued_s: float
    first_audio_s: float | None
    """From admission to the first block handed out."""
    onset_s: float | None
    """From admission to the first audible sample, for a client that plays what it gets at once."""
    speaking_s: float
    """From the slot to the end."""
    audio_s: float
    n_frames: int


Fact: TypeAlias = str | int | float | bool | None
"""None is left out. Never what a client wants said."""


class Stage:
    """A part of the work, while it goes on. Does nothing; subclasses override."""

    def note(self, **facts: Fact) -> None:
        """What came out in the meantime."""


_NOTHING = contextlib.nullcontext(Stage())


class Observer:
    """Does nothing; subclasses override. Called on the loop, must be quick."""

    def ended(self, report: Report) -> None: ...

    def stalled(self) -> None:
        """A running engine call has made no progress for --stall-timeout. Once for each."""

    def note(self, **facts: Fact) -> None:
        """About the request that is being served."""

    def stage(self, name: str, **facts: Fact) -> AbstractContextManager[Stage]:
        """Around admission, a fragment, the engine, encoding. Stages nest as the calls do."""
        return _NOTHING


def outcome_of(error: BaseException | None, finish_reason: str) -> tuple[str, str]:
    """(outcome, cause) of a Report."""
    if error is None:
        return finish_reason, ""
    if isinstance(error, Cancelled):
        return "cancelled", error.reason
    if isinstance(error, OutputError):
        return "silent", ""
    if isinstance(error, PhonateError):
        refused = error.status < 500
        return ("refused" if refused else "failed"), error.code or error.type
    return "failed", "internal_error"
