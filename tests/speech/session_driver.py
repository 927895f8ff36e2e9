"""Plays client, clock, transport and engine for a Session, one call at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from phonate.errors import PhonateError
from phonate.speech.session import Session
from phonate.speech.session_events import (
    CancelEngine,
    Close,
    Config,
    PauseEngine,
    Plan,
    Resolve,
    ResumeEngine,
    SessionLimits,
    StartFragment,
)
from phonate.speech.session_moves import State

MS = 24
"""Samples of a millisecond."""


def pcm(ms: int, byte: bytes = b"\1") -> bytes:
    return byte * (2 * ms * MS)


class Driver:
    """`out` is what the client got: events as dicts, PCM as bytes. The engine does nothing by
    itself: `speak()` plays one fragment. `reading` False: the client does not read."""

    def __init__(
        self,
        resolve: Callable[[Config], Plan] = lambda config: Plan(what=config.voice),
        **limits: Any,
    ) -> None:
        self.now = 100.0
        self.resolve = resolve
        self.session = Session(
            session_id="s1",
            request_id="r1",
            now=self.now,
            limits=SessionLimits(**limits),
        )
        self.machine: Any = self.session
        """What faces the client: the session, or a translation around it."""
        self.out: list[Any] = []
        self.started: list[StartFragment] = []
        self.cancelled: list[str] = []
        self.closed: Close | None = None
        self.reading = True
        self.resolving = True
        """False: the answer to a config takes its time."""
        self.gate_open = True
        self.pauses: list[int] = []
        """Serials of pauses that the engine has not acknowledged yet."""
        self.in_flight = False
        self.settle()

    # The shell --------------------------------------------------------------------------------

    def settle(self) -> None:
        """Carry out commands and send what can be sent, until nothing moves."""
        while self._carry_out() | self._send_one() | self._carry_out():
            pass

    def _carry_out(self) -> bool:
        commands = self.machine.take_commands()
        for command in commands:
            if isinstance(command, Resolve):
                self._resolve(command.config)
            elif isinstance(command, StartFragment):
                assert self.gate_open, "started behind a shut gate"
                self.started.append(command)
            elif isinstance(command, CancelEngine):
                self.cancelled.append(command.reason)
            elif isinstance(command, PauseEngine):
                self.gate_open = False
                self.pauses.append(command.serial)
            elif isinstance(command, ResumeEngine):
                self.gate_open = True
            else:
                assert self.closed is None
                self.closed = command
        return bool(commands)

    def _resolve(self, config: Config) -> None:
        if self.resolving:
            try:
                plan = self.resolve(config)
            except PhonateError as error:
                self.machine.config_refused(error, self.now)
            else:
                self.machine.config_resolved(plan, self.now)

    def _send_one(self) -> bool:
        if self.in_flight or not self.reading:
            return False
        frame = self.machine.next_frame(self.now)
        if frame is None:
            return False
        self.out.append(frame)
        self.machine.frame_sent(self.now)
        return True

    def stick(self) -> None:
        """The transport takes one frame and does not finish with it."""
        self.in_flight = True
        frame = self.machine.next_frame(self.now)
        assert frame is not None
        self.out.append(frame)

    def unstick(self) -> None:
        self.in_flight = False
        self.machine.frame_sent(self.now)
        self.settle()

    def wait(self, seconds: float) -> None:
        """Let time pass, stopping at every deadline on the way as a shell would."""
        end = self.now + seconds
        while (at := self.session.next_deadline()) is not None and at <= end:
            self.now = max(self.now, at)
            self.session.tick(self.now)
            self.settle()
            if self.session.next_deadline() == at:
                break
        self.now = end
        self.session.tick(self.now)
        self.settle()

    # The client -------------------------------------------------------------------------------

    def send(self, type_: str, **fields: Any) -> None:
        self.machine.receive(json.dumps({"type": type_, **fields}), self.now)
        self.settle()

    def raw(self, frame: str) -> None:
        self.machine.receive(frame, self.now)
        self.settle()

    def config(self, **fields: Any) -> None:
        self.send("config", **fields)

    def text(self, text: str) -> None:
        self.send("text", text=text)

    def say(self, text: str) -> None:
        """Text that is spoken as one fragment."""
        self.text(text)
        self.send("flush")

    # The engine -------------------------------------------------------------------------------

    def audio(self, ms: int = 100, fragment: int | None = None, byte: bytes = b"\1") -> None:
        self.session.engine_audio(self._which(fragment), pcm(ms, byte), self.now)
        self.settle()

    def done(self, fragment: int | None = None, reason: str = "stop") -> None:
        self.session.engine_done(self._which(fragment), reason, self.now)
        self.settle()

    def failed(self, error: PhonateError, fragment: int | None = None) -> None:
        self.session.engine_failed(self._which(fragment), error, self.now)
        self.settle()

    def speak(self, ms: int = 100) -> None:
        self.audio(ms)
        self.done()

    def quiet(self) -> None:
        """The engine reports that it stands still, for every pause it was told."""
        while self.pauses:
            self.session.engine_quiescent(self.pauses.pop(0), self.now)
            self.settle()

    def _which(self, fragment: int | None) -> int:
        return self.started[-1].fragment if fragment is None else fragment

    # What came --------------------------------------------------------------------------------

    @property
    def events(self) -> list[dict[str, Any]]:
        return [o for o in self.out if isinstance(o, dict)]

    @property
    def types(self) -> list[str]:
        """Event types in order; consecutive PCM as one "pcm"."""
        names: list[str] = []
        for o in self.out:
            name = o["type"] if isinstance(o, dict) else "pcm"
            if name != "pcm" or names[-1:] != ["pcm"]:
                names.append(name)
        return names

    @property
    def heard_ms(self) -> float:
        return sum(len(o) for o in self.out if isinstance(o, bytes)) / 2 / MS

    def of(self, type_: str) -> list[dict[str, Any]]:
        return [e for e in self.events if e["type"] == type_]

    def last(self, type_: str) -> dict[str, Any]:
        return self.of(type_)[-1]

    def take(self) -> list[str]:
        """Types since the last take."""
        types = self.types
        self.out.clear()
        return types

    @property
    def state(self) -> State:
        return self.session.state


def opened(**limits: Any) -> Driver:
    """A session after its config, with an empty `out`."""
    driver = Driver(**limits)
    driver.config(voice="heart")
    assert driver.take() == ["ready"]
    return driver
