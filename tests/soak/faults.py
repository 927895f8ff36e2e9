"""What can go wrong in an engine, and what each client is then told.

A text that begins with `[hang]` makes the scripted engine hang, and so on; the rest of the text is
the client's own, so that tones tell answers apart. Any request may also be told to come again later
(503) or that its time ran out in the queue (504).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from phonate.engine.scripted import Emit, Fail, Finish, Step, Wait, duration_of, frequency_of
from phonate.errors import EngineFailure

TIMEOUT_S = 1.5
"""--synthesis-timeout of the server under test."""
LONG_S = 3600.0
DEAF_S = 2.5
"""How long the engine that hears nothing keeps its slot."""


@dataclass(frozen=True)
class Answers:
    """What may come of a fault besides 503 and 504, which may come of everything.

    whole: (status, code) of an answer before any audio. cut: it may also break off after audio.
    finish: finish_reasons of whole audio. event: codes of a WebSocket's warning.
    """

    whole: frozenset[tuple[int, str | None]] = frozenset()
    cut: bool = False
    finish: frozenset[str] = frozenset()
    event: frozenset[str] = frozenset()


_FAILED = frozenset({(502, "engine_failure")})
_SILENT = frozenset({(502, "output_error")})
_TIMEOUT = frozenset({(504, "timeout")})

FAULTS: dict[str, Answers] = {
    "fine": Answers(finish=frozenset({"stop"})),
    "hang": Answers(_TIMEOUT, event=frozenset({"timeout"})),
    "deaf": Answers(_TIMEOUT, event=frozenset({"timeout"})),
    "raise": Answers(_FAILED, event=frozenset({"engine_failure"})),
    "bug": Answers(frozenset({(500, "internal_error")}), event=frozenset({"internal_error"})),
    "nan": Answers(_SILENT, event=frozenset({"silent"})),
    "nothing": Answers(_SILENT, event=frozenset({"silent"})),
    "quits": Answers(_FAILED, event=frozenset({"engine_failure"})),
    "tenfold": Answers(finish=frozenset({"length"})),
    "endless": Answers(finish=frozenset({"length"})),
    "dies": Answers(_FAILED, cut=True, event=frozenset({"engine_failure"})),
    "freezes": Answers(_TIMEOUT, cut=True, event=frozenset({"timeout"})),
    "breaks": Answers(
        frozenset({(500, "internal_error")}), cut=True, event=frozenset({"internal_error"})
    ),
}


def text_for(fault: str, about: str) -> str:
    return about if fault == "fine" else f"[{fault}] {about}"


def script(request: Any) -> Sequence[Step] | None:
    """Texts of `text_for` to steps."""
    name, bracket, _ = request.text.removeprefix("[").partition("]")
    if not bracket:
        return None
    seconds, hz = duration_of(request.text), frequency_of(request.text)
    start = Emit.tone(0.5, hz)
    faults: dict[str, Sequence[Step]] = {
        "hang": [Wait(LONG_S)],
        "deaf": [Wait(DEAF_S, cancellable=False)],
        "raise": [Fail(EngineFailure("The scripted engine gave up."))],
        "bug": [Fail(ZeroDivisionError("a bug in the engine"))],
        "nan": [Emit.nan(seconds)],
        "nothing": [],
        "quits": [Finish("cancelled")],
        "tenfold": [Emit.tone(10 * seconds, hz)],
        "endless": [Emit.tone(float("inf"), hz)],
        "dies": [start, Fail(EngineFailure("The scripted engine died."))],
        "freezes": [start, Wait(LONG_S)],
        "breaks": [start, Fail(ZeroDivisionError("a bug in the engine"))],
    }
    return faults.get(name)
