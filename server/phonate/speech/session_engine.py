"""The engine's side of one WebSocket session: what the machine commands, done on the loop.

One fragment at a time takes a slot in the queue, runs on an engine thread, and reports to the
session. A session that pauses (or does not read) holds its engine in mid-fragment, which is what
makes resuming instant. When somebody else waits for the slot meanwhile, the session gives it up:
the synthesis is cancelled, and after the resume it is made again with the same seed, without the
samples that were delivered already. So a paused session costs others one frame, not a minute.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from phonate.audio.pcm import Pcm
from phonate.engine.base import CancelToken, Samples
from phonate.errors import Cancelled, EngineFailure, PhonateError, Timeout
from phonate.speech.admission import Slot
from phonate.speech.bridge import Synthesis
from phonate.speech.request import SpeechRequest, draw_seed
from phonate.speech.session_events import (
    SAMPLE_RATE,
    CancelEngine,
    Command,
    PauseEngine,
    ResumeEngine,
    StartFragment,
)
from phonate.speech.shaping import Shaping

if TYPE_CHECKING:
    from phonate.speech.service import SpeechService
    from phonate.speech.session import Session

log = logging.getLogger("phonate.speech")

YIELD_POLL_S = 0.02
"""How often a session that stands still looks whether others wait for its slot."""


class _Whole:
    """A shaper for a fragment that is an utterance of its own: its end is flushed out."""

    def __init__(self, shaping: Shaping) -> None:
        self._shaping = shaping
        self._fragment = shaping.fragment(0.0)

    def feed(self, samples: Samples) -> Pcm:
        return self._fragment.feed(samples)

    def finish(self) -> Pcm:
        return np.concatenate((self._fragment.finish(), self._shaping.finish()))


class _Attempt:
    """One synthesis of a fragment. `yielded`: it was stopped only to let others go first."""

    def __init__(self) -> None:
        self.token = CancelToken()
        self.yielded = False


@dataclass
class _Progress:
    """Of one fragment, over all attempts."""

    seed: int
    delivered: int = 0
    """Samples that the session has."""


class SessionEngine:
    """Carries out a session's commands, except Close. `wake` is called after every notice, for
    the shell to look at what the session wants next. The plans of the session are SpeechRequests.
    """

    def __init__(self, service: SpeechService, session: Session, wake: Callable[[], None]) -> None:
        self._service = service
        self._session = session
        self._wake = wake
        self._gate = asyncio.Event()
        self._gate.set()
        self._serial = 0
        self._stood_still_s = 0.0
        self._still_since = 0.0
        self._running: set[Synthesis] = set()
        self._attempt: _Attempt | None = None
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
        self._serial = serial
        self._still_since = time.monotonic()
        for synthesis in self._running:
            synthesis.pause()
        self._waiting = self._spawn(self._stand_still(serial))

    def _resume(self) -> None:
        self._stood_still_s += time.monotonic() - self._still_since
        if self._waiting is not None:
            self._waiting.cancel()
        for synthesis in self._running:
            synthesis.resume()
        self._gate.set()

    def _cancel(self, reason: str) -> None:
        if self._attempt is not None:
            self._attempt.token.set(reason)
        if self._speaking is not None:
            self._speaking.cancel()
            self._speaking = None

    async def _stand_still(self, serial: int) -> None:
        for synthesis in list(self._running):
            await synthesis.quiescent()
        self._session.engine_quiescent(serial, time.monotonic())
        self._wake()
        while self._running:
            if self._service.admission.queued and self._attempt is not None:
                self._attempt.yielded = True
                self._attempt.token.set("yielded")
                return
            await asyncio.sleep(YIELD_POLL_S)

    # One fragment -----------------------------------------------------------------------------

    async def _speak(self, command: StartFragment) -> None:
        request: SpeechRequest = command.plan
        self._service.begun()
        try:
            reason = await self._synthesize(command, request)
        except Exception as error:
            self._service.failed(error, request.request_id)
            if not isinstance(error, PhonateError):
                error = EngineFailure("An unexpected error. It is in the server's log.")
            self._session.engine_failed(command.fragment, error, time.monotonic())
        else:
            self._session.engine_done(command.fragment, reason, time.monotonic())
        self._wake()

    async def _synthesize(self, command: StartFragment, request: SpeechRequest) -> str:
        """Until the fragment is whole; its finish reason."""
        progress = _Progress(draw_seed() if request.seed is None else request.seed)
        deadline: float | None = time.monotonic() + self._service.limits.synthesis_timeout_s
        while True:
            await self._gate.wait()
            slot = await self._service.admission.acquire(
                request.key, deadline, admitted=deadline is None
            )
            deadline = None
            if not self._gate.is_set():
                slot.release()
                continue
            self._session.engine_started(command.fragment, time.monotonic())
            attempt = self._attempt = _Attempt()
            synthesis = self._start(command, request, progress.seed, attempt.token, slot)
            timer = self._spawn(self._watch(command.fragment, attempt.token))
            try:
                await self._deliver(command.fragment, synthesis, progress)
            except Cancelled:
                if attempt.yielded:
                    continue
                raise
            finally:
                timer.cancel()
            assert synthesis.result is not None
            return synthesis.result.finish_reason

    def _start(
        self,
        command: StartFragment,
        request: SpeechRequest,
        seed: int,
        token: CancelToken,
        slot: Slot,
    ) -> Synthesis:
        def ended() -> None:
            self._running.discard(synthesis)
            self._service.stopped(synthesis)
            slot.release()

        synthesis = Synthesis(
            self._service.engine,
            request.for_engine(command.text, seed),
            _Whole(self._shaping(command, request)),
            token,
            on_done=ended,
        )
        self._running.add(synthesis)
        self._service.started(synthesis)
        synthesis.start()
        return synthesis

    async def _deliver(self, fragment: int, synthesis: Synthesis, progress: _Progress) -> None:
        """Hand blocks to the session, without the samples that it has from an earlier attempt."""
        seen = 0
        async for block in synthesis.blocks():
            fresh = block[max(0, progress.delivered - seen) :]
            seen += len(block)
            if len(fresh):
                progress.delivered = seen
                self._session.engine_audio(fragment, fresh.tobytes(), time.monotonic())
                self._wake()
        if synthesis.result is None or synthesis.result.finish_reason == "cancelled":
            raise Cancelled(synthesis.token.reason or "engine")

    def _shaping(self, command: StartFragment, request: SpeechRequest) -> Shaping:
        sound = self._service.sound
        if not command.first:
            # The client still plays: there is nothing for a start-up buffer to protect.
            sound = dataclasses.replace(sound, startup_buffer_ms=0.0)
        rate = self._service.engine.info.sample_rate
        return Shaping(sound, rate, sample_rate=SAMPLE_RATE, speed=request.speed)

    async def _watch(self, fragment: int, token: CancelToken) -> None:
        """Ends a synthesis that takes too long. Time spent standing still does not count."""
        timeout = self._service.limits.synthesis_timeout_s
        began, still = time.monotonic(), self._stood_still_s
        while True:
            await self._gate.wait()
            left = timeout - (time.monotonic() - began - (self._stood_still_s - still))
            if left <= 0:
                break
            await asyncio.sleep(left)
        error = Timeout(
            f"The synthesis of fragment {fragment} did not finish within {timeout:g} s "
            "(--synthesis-timeout)."
        )
        token.set("timeout")
        if self._speaking is not None:
            self._speaking.cancel()
            self._speaking = None
        self._session.engine_failed(fragment, error, time.monotonic())
        self._wake()

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
