"""Whether a session's audio may flow: pauses, clients that read slowly, and the engine's gate.

The gate is shut while the client pauses and while too much PCM waits for it. Shutting it asks the
engine to stand still; only when it does is a pause acknowledged. What is asked meanwhile is
answered afterwards, in order, so that every `pause` and every `resume` gets its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from phonate.speech.outbox import Outbox
from phonate.speech.session_events import SAMPLE_RATE, Command, PauseEngine, ResumeEngine

_MAX_OWED = 16
"""Somebody who toggles faster than the engine stops needs the last answer, not hundreds."""


class Flow(Enum):
    RUNNING = "running"
    PAUSING = "pausing"
    """Asked for; the engine still moves."""
    PAUSED = "paused"


class FlowControl:
    """See the module's text. `answer` gets "paused" and "resumed"; `buffer_s` is how much audio
    may wait for the client."""

    def __init__(
        self,
        outbox: Outbox,
        answer: Callable[[str], None],
        command: Callable[[Command], None],
        buffer_s: float,
    ) -> None:
        self.flow = Flow.RUNNING
        self.gate_shut = False
        self.paused_at = 0.0
        self._outbox = outbox
        self._answer = answer
        self._command = command
        self._limit = buffer_s * SAMPLE_RATE
        self._backlogged = False
        self._still = False
        """The engine has told that it stands still behind the shut gate."""
        self._serial = 0
        self._owed: list[str] = []
        """Answers due once the engine stands still."""

    def pause(self, now: float) -> None:
        if self.flow is Flow.PAUSED:
            self._answer("paused")
        elif self.flow is Flow.PAUSING:
            self._owe("paused")
        else:
            self.flow = Flow.PAUSING
            self.paused_at = now
            self._outbox.held = True
            self._owed = ["paused"]

    def resume(self) -> None:
        if self.flow is Flow.PAUSING:
            self._owe("resumed")
            return
        self._run()
        self._answer("resumed")

    def engine_still(self, serial: int) -> None:
        """The answer to PauseEngine number `serial`; an old one says nothing about this pause."""
        if serial == self._serial and self.gate_shut:
            self._still = True

    def advance(self) -> None:
        """After every change: acknowledge, and shut or open the gate."""
        if self.flow is Flow.PAUSING and self._still:
            self._acknowledge()
        self._watch_backlog()
        shut = self._backlogged or self.flow is not Flow.RUNNING
        if shut == self.gate_shut:
            return
        self.gate_shut, self._still = shut, False
        if shut:
            self._serial += 1
            self._command(PauseEngine(self._serial))
        else:
            self._command(ResumeEngine())

    def _owe(self, answer: str) -> None:
        if self._owed[-1] == answer:
            return
        if len(self._owed) >= _MAX_OWED:
            del self._owed[-1]
        else:
            self._owed.append(answer)

    def _acknowledge(self) -> None:
        for answer in self._owed:
            self._answer(answer)
        if self._owed[-1] == "resumed":
            self._run()
        else:
            self.flow = Flow.PAUSED

    def _run(self) -> None:
        self.flow = Flow.RUNNING
        self._outbox.held = False

    def _watch_backlog(self) -> None:
        if self._outbox.buffered >= self._limit:
            self._backlogged = True
        elif self._outbox.buffered <= self._limit / 2:
            self._backlogged = False
