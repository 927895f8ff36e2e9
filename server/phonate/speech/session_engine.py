"""The engine's side of one WebSocket session: what the machine commands, done on the loop.

Each fragment is an utterance of its own. A session that pauses (or does not read) holds its engine
in mid-fragment, which is what makes resuming instant. When somebody else waits for the slot
meanwhile, the session gives it up: the utterance is cancelled, and after the resume it is made
again with the same seed, without the samples that were delivered already. So a paused session
costs others one frame, not a minute.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from phonate.errors import Cancelled, InternalError, NotReady, OutputError, PhonateError
from phonate.speech.request import SpeechRequest
from phonate.speech.service import State
from phonate.speech.session_events import (
    CancelEngine,
    Command,
    PauseEngine,
    ResumeEngine,
    StartFragment,
)

if TYPE_CHECKING:
    from phonate.speech.service import SpeechService
    from phonate.speech.session import Session
    from phonate.speech.utterance import Utterance

log = logging.getLogger("phonate.speech")

Prepare = Callable[[Any, str], Awaitable[SpeechRequest]]
"""A plan of the session and a fragment's text -> the request that speaks it."""

YIELD_POLL_S = 0.02
"""How often a session that stands still looks whether others wait for its slot."""


class SessionEngine:
    """Carries out a session's commands about the engine. `wake` is called after every notice, for
    the shell to look at what the session wants next.
    """

    def __init__(
        self, service: SpeechService, session: Session, wake: Callable[[], None], prepare: Prepare
    ) -> None:
        self._service = service
        self._session = session
        self._wake = wake
        self._prepare = prepare
        self._gate = asyncio.Event()
        self._gate.set()
        self._utterance: Utterance | None = None
        self._yielded = False
        """The utterance was cancelled only to let others go first."""
        self._ending: set[Utterance] = set()
        """Cancelled ones whose engine may still move."""
        self._speaking: asyncio.Task[None] | None = None
        self._waiting: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def carry_out(self, command: Command) -> None:
        if isinstance(command, StartFragment):
            self._speaking = self._spawn(self._speak(command))
        elif isinstance(command, PauseEngine):
            self._pause(command.serial)
        elif isinstance(command, ResumeEngine):
            self._resume()
        elif isinstance(command, CancelEngine):
            self._cancel(command.reason)

    async def close(self) -> None:
        """Stop whatever runs. The engine's slot comes free when its thread has ended."""
        self._cancel("session_closed")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Commands ---------------------------------------------------------------------------------

    def _pause(self, serial: int) -> None:
        self._gate.clear()
        if self._utterance is not None:
            self._utterance.pause()
        self._waiting = self._spawn(self._stand_still(serial))

    def _resume(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        if self._utterance is not None:
            self._utterance.resume()
        self._gate.set()

    def _cancel(self, reason: str) -> None:
        if self._utterance is not None:
            self._let_go(self._utterance, reason)
        if self._speaking is not None:
            self._speaking.cancel()
            self._speaking = None

    def _let_go(self, utterance: Utterance, reason: str) -> None:
        utterance.cancel(reason)
        self._utterance = None
        self._ending = {other for other in self._ending if other.holds_slot} | {utterance}

    async def _stand_still(self, serial: int) -> None:
        for utterance in (*self._ending, self._utterance):
            if utterance is not None:
                await utterance.quiescent()
        self._ending.clear()
        self._session.engine_quiescent(serial, time.monotonic())
        self._wake()
        while (utterance := self._utterance) is not None:
            if self._service.admission.queued and utterance.holds_slot:
                self._yielded = True
                self._let_go(utterance, "yielded")
            await asyncio.sleep(YIELD_POLL_S)

    # One fragment -----------------------------------------------------------------------------

    async def _speak(self, command: StartFragment) -> None:
        fragment, session = command.fragment, self._session
        try:
            reason = await self._until_whole(command)
        except OutputError:
            # Nothing audible came, which the session finds out by itself.
            session.engine_done(fragment, "stop", time.monotonic())
        except PhonateError as error:
            session.engine_failed(fragment, error, time.monotonic())
        except Exception:
            log.exception("request %s: a fragment failed", session.request_id)
            failure = InternalError(session.request_id)
            session.engine_failed(fragment, failure, time.monotonic())
        else:
            session.engine_done(fragment, reason, time.monotonic())
        self._wake()

    async def _until_whole(self, command: StartFragment) -> str:
        """Speak, again if others had to go first; the finish reason."""
        request = await self._prepare(command.plan, command.text)
        request = dataclasses.replace(request, startup_buffer=command.first)
        delivered = 0
        while True:
            await self._gate.wait()
            self._yielded = False
            utterance = self._utterance = self._service.speak(request)
            began = time.monotonic()
            seen = 0
            try:
                async for block in utterance.blocks():
                    if not seen:
                        self._session.engine_started(command.fragment, began + utterance.queued_s)
                    fresh = block[max(0, delivered - seen) :]
                    seen += len(block)
                    if len(fresh):
                        delivered = seen
                        self._session.engine_audio(
                            command.fragment, fresh.tobytes(), time.monotonic()
                        )
                        self._wake()
                return utterance.finish_reason
            except NotReady:
                # A session that is open may finish what it has; only newcomers are sent away.
                if self._service.state is not State.DRAINING or request.admitted:
                    raise
                request = dataclasses.replace(request, admitted=True)
            except Cancelled:
                if not self._yielded:
                    raise
                # A second try may have changed the seed; what was delivered came from this one.
                request = dataclasses.replace(request, seed=utterance.seed, admitted=True)
            finally:
                if self._utterance is utterance:
                    self._utterance = None

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
