"""Keeps one engine process alive: starts it, watches it, and starts another when it is gone.

    STARTING --READY--> RUNNING --death--> WAITING --back-off over--> STARTING ...
    any state --close--> CLOSED

One thread does all of that. It is also the thread that the processes are children of: on Linux
they are killed when it ends, so it lives as long as they do.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from phonate.engine.base import CancelToken, EngineInfo, Vitals
from phonate.engine.isolated import values
from phonate.engine.isolated.process import EngineProcess, ending
from phonate.engine.isolated.wire import Kind
from phonate.errors import Busy, EngineDied, EngineFailure, PhonateError, SetupError

log = logging.getLogger("phonate.engine.process")

Launch: TypeAlias = Callable[[Callable[[], None]], EngineProcess]
CAUSES = ("crashed", "exited", "stalled", "silent", "failed_start")
POLL_S = 0.02
"""How long a set token may go unnoticed."""


class State(Enum):
    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds."""

    beat: float = 0.5
    """Between two signs of life, and two looks for them."""
    silent: float = 10.0
    """Without one, a process hangs or is stopped."""
    silent_start: float = 60.0
    """The same while it loads: imports from a slow disk hold the interpreter."""
    restart: float = 600.0
    """Until it is ready again."""
    first_backoff: float = 0.1
    last_backoff: float = 10.0
    healthy: float = 5.0
    """After so long a life the back-off begins anew."""
    wait: float = 10.0
    """That a request waits for a restart."""
    close: float = 5.0
    """That a process has to end by itself when it is told to."""


@dataclass(frozen=True, slots=True)
class _Death:
    cause: str
    words: str
    """"killed by SIGABRT", "no sign of life for 10 s"."""
    lived_s: float
    """Since it was ready; 0 when it never was."""
    error: PhonateError | None = None
    """Why it could not start, in its own words."""
    said: str = ""
    """The end of its standard error: for the operator only."""


class Supervisor:
    """See the module's text. `build`: the fields of BUILD."""

    def __init__(self, launch: Launch, build: values.Fields, timing: Timing) -> None:
        self._launch = launch
        self._build = build
        self._timing = timing
        self._changed = threading.Condition()
        self._state = State.STARTING
        self._closing = False
        self._process: EngineProcess | None = None
        self._info: EngineInfo | None = None
        self._stillborn: PhonateError | None = None
        self._restarts = dict.fromkeys(CAUSES, 0)
        self._last_words = ""
        self._backoff_s = timing.first_backoff
        self._due = 0.0
        self._start_s = 1.0
        """How long the last start took."""
        self._thread = threading.Thread(target=self._keep, name="phonate-supervisor", daemon=True)

    def start(self) -> EngineInfo:
        """Wait for the first process to be ready. Raises SetupError, or what it said."""
        self._thread.start()
        with self._changed:
            self._changed.wait_for(lambda: self._info is not None or self._stillborn is not None)
            if self._stillborn is not None:
                raise self._stillborn
            assert self._info is not None
            return self._info

    def running(self, token: CancelToken | None = None) -> EngineProcess | None:
        """The process, once it runs; None when the token is set before. Raises Busy when that
        would take, or took, too long."""
        deadline = time.monotonic() + self._timing.wait
        with self._changed:
            while True:
                if self._closing:
                    raise EngineFailure("The engine is closed.")
                if self._up():
                    return self._process
                if token is not None and token.is_set:
                    return None
                now = time.monotonic()
                expected = max(0.0, self._due - now) + self._start_s
                if now >= deadline or expected > self._timing.wait:
                    raise Busy(
                        f"The engine's process is being restarted (it was lost: "
                        f"{self._last_words}). Try again later.",
                        retry_after_s=expected,
                    )
                self._changed.wait(min(POLL_S, deadline - now))

    @property
    def vitals(self) -> Vitals:
        with self._changed:
            return Vitals(self._up(), dict(self._restarts))

    def keep_warm(self) -> None:
        """From now on a new process pays its first-call costs before it is ready."""
        self._build = {**self._build, "warm": True}

    def close(self) -> None:
        """Idempotent. Returns when the process is gone."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def _up(self) -> bool:
        return (
            self._state is State.RUNNING and self._process is not None and not self._process.ended
        )

    # On the supervisor's thread ---------------------------------------------------------------

    def _keep(self) -> None:
        while True:
            self._enter(State.STARTING)
            death = self._one_life()
            if self._closing:
                break
            if self._info is None:
                self._stillborn = death.error or SetupError(
                    f"The engine's process did not start: {death.words}. {death.said}".rstrip()
                )
                self._closing = True
                break
            if self._closing_after(death):
                break
        self._enter(State.CLOSED)

    def _enter(self, state: State) -> None:
        with self._changed:
            self._state = state
            self._changed.notify_all()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _one_life(self) -> _Death:
        began = time.monotonic()
        try:
            process = self._process = self._launch(self._notify)
        except OSError as error:
            stillborn = _Death("failed_start", f"it cannot be started: {error}", 0.0)
            self._count(stillborn)
            return stillborn
        process.tell(Kind.BUILD, fields=self._build)
        death = self._start_up(process)
        ready = time.monotonic()
        if death is None:
            self._start_s = ready - began
            self._enter(State.RUNNING)
            death = self._watch(process)
            death = dataclasses.replace(death, lived_s=time.monotonic() - ready)
        code = process.bury()
        if not death.words:
            death = _named(death, code, process)
        self._count(death)  # before those hear of it who may ask
        process.fail_calls(self._failure(death.words))
        return death

    def _count(self, death: _Death) -> None:
        with self._changed:
            if not self._closing and self._info is not None:
                self._restarts[death.cause] += 1

    def _failure(self, words: str) -> Callable[[], PhonateError]:
        if self._closing:
            return lambda: EngineFailure("The engine was closed.")
        return lambda: EngineDied(
            f"The engine's process ended in the middle of the work ({words}). A new one is being "
            "started: send the request again."
        )

    def _start_up(self, process: EngineProcess) -> _Death | None:
        """None once it is ready."""
        death = self._until(
            process,
            lambda: process.answer is not None,
            silent_s=self._timing.silent_start,
            # The first start may take as long as its operator likes to watch.
            at_most_s=math.inf if self._info is None else self._timing.restart,
        )
        if death is not None:
            return dataclasses.replace(death, cause=death.cause or "failed_start")
        assert process.answer is not None
        try:
            if process.answer.kind is Kind.FAILED:
                error = values.unpack_error(process.answer.fields)
                if not isinstance(error, PhonateError):
                    error = SetupError(f"The engine could not be made {error}")
                process.kill()
                return _Death("failed_start", error.message, 0.0, error)
            self._know(values.unpack_info(process.answer.fields))
        except (KeyError, TypeError, ValueError, SetupError) as error:
            process.kill()
            return _Death("failed_start", str(error), 0.0, SetupError(str(error)))
        return None

    def _know(self, info: EngineInfo) -> None:
        if self._info is None:
            self._info = info
        # Voices, limits and the catalog were made for the first one.
        elif dataclasses.replace(info, details={}) != dataclasses.replace(self._info, details={}):
            raise SetupError(
                f"The engine came back as another one ({info.model}, {info.device}): its files "
                "were changed. Restart the server."
            )

    def _watch(self, process: EngineProcess) -> _Death:
        death = self._until(process, lambda: False, silent_s=self._timing.silent)
        assert death is not None
        return death

    def _until(
        self,
        process: EngineProcess,
        done: Callable[[], bool],
        *,
        silent_s: float,
        at_most_s: float = math.inf,
    ) -> _Death | None:
        """None when `done`; else how the process ended, or why it was killed. A cause of "" is
        for its exit code to tell."""
        beat, ticks = self._timing.beat, 0
        while True:
            with self._changed:
                woken = self._changed.wait_for(
                    lambda: self._closing or process.ended or done(), beat
                )
            if self._closing:
                process.tell(Kind.CLOSE)
                if not process.wait(self._timing.close):
                    log.warning("the engine's process does not end by itself and is killed")
                    process.kill()
                return _Death("closed", "the server closed it", 0.0)
            if done():
                return None
            if process.ended:
                return _Death("", "", 0.0)
            if woken:
                continue
            process.tick()
            ticks += 1
            if ticks * beat > at_most_s:
                process.kill()
                return _Death("failed_start", f"not ready within {at_most_s:g} s", 0.0)
            if process.silent_ticks * beat > silent_s:
                process.kill()
                return _Death("silent", f"no sign of life for {silent_s:g} s", 0.0)
            if (late := process.stalled(beat)) is not None:
                process.kill()
                return _Death("stalled", f"no progress for {late.patience_s:g} s", 0.0)

    def _closing_after(self, death: _Death) -> bool:
        """Tell of it and wait for the next start; True when there is to be none."""
        if death.lived_s >= self._timing.healthy:
            self._backoff_s = self._timing.first_backoff
        pause = self._backoff_s
        self._backoff_s = min(2 * pause, self._timing.last_backoff)
        log.error(
            "the engine's process is lost: %s; it lived %.1f s; a new one starts in %.1f s%s",
            death.words, death.lived_s, pause, f"; it said: {death.said}" if death.said else "",
            extra={"cause": death.cause},
        )  # fmt: skip
        with self._changed:
            # For clients, too, whom a path in a message of the start is no business of.
            self._last_words = death.words if death.lived_s else "it does not start"
            self._state = State.WAITING
            self._due = time.monotonic() + pause
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._closing, pause)


def _named(death: _Death, code: int, process: EngineProcess) -> _Death:
    """With the exit code's own story, and the process's last words."""
    words = f"it sent what is no frame: {process.nonsense}" if process.nonsense else ending(code)
    cause = death.cause or ("crashed" if code < 0 else "exited")
    return dataclasses.replace(death, cause=cause, words=words, said=process.last_words)
