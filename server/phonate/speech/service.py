"""The speaking service: owns the engine and its queue, and knows how everything is going.

Exactly one per process. `speak` starts an utterance; the edges consume it. Nothing else touches
the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass
from enum import Enum

from phonate.engine.base import Engine, Mortal, Reference, Samples, Vitals
from phonate.errors import EngineFailure, OutputError, PhonateError
from phonate.speech.admission import Admission
from phonate.speech.bridge import Synthesis
from phonate.speech.observer import Observer
from phonate.speech.request import SpeechRequest
from phonate.speech.shaping import SoundOptions
from phonate.speech.utterance import Utterance

log = logging.getLogger("phonate.speech")


class State(Enum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Limits:
    """See the options of the same names in `settings`."""

    max_active: int = 1
    max_queued: int = 8
    max_output_bytes: int = 64 * 2**20
    synthesis_timeout_s: float = 120.0
    stall_timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Health:
    """What /health tells. Ages in milliseconds; None when nothing runs."""

    ok: bool
    active_requests: int
    queued_requests: int
    requests_total: int
    synthesis_failures_total: int
    unusable_outputs_total: int
    last_progress_age_ms: int | None
    stalled: bool
    engine_up: bool
    engine_restarts_total: int
    """Both can only change where the engine lives in a process of its own."""


class SpeechService:
    """See the module's text. Created inside the loop that it serves."""

    def __init__(
        self,
        engine: Engine,
        limits: Limits,
        sound: SoundOptions,
        observer: Observer | None = None,
    ) -> None:
        self.observer = observer or Observer()
        self.engine = engine
        self.limits = limits
        self.sound = sound
        self.admission = Admission(limits.max_active, limits.max_queued)
        self.state = State.STARTING
        self._running: set[Synthesis] = set()
        self._utterances: set[Utterance] = set()
        self._requests_total = 0
        self._failures_total = 0
        self._unusable_total = 0

    async def start(self) -> None:
        """Warm the engine up; ready afterwards."""
        await asyncio.to_thread(self.engine.warm_up)
        self.state = State.READY

    def speak(self, request: SpeechRequest) -> Utterance:
        """Begin one utterance. It queues, speaks and cleans up by itself; the caller iterates
        `blocks()` and calls `cancel` when nobody listens any more."""
        self._requests_total += 1
        utterance = Utterance(self, request)
        self._utterances.add(utterance)
        utterance.task.add_done_callback(lambda _: self._ended(utterance))
        return utterance

    async def extract_voice(self, audio: Samples, text: str | None, key: str = "") -> Reference:
        """Let the engine listen to a recording (mono, 24 kHz), in its turn like any request."""
        deadline = time.monotonic() + self.limits.synthesis_timeout_s
        slot = await self.admission.acquire(key, deadline)
        listening = asyncio.ensure_future(asyncio.to_thread(self.engine.extract_voice, audio, text))
        # Not when the caller is done, but when the engine is: a caller may leave early.
        listening.add_done_callback(lambda _: slot.release())
        return await asyncio.shield(listening)

    def started(self, synthesis: Synthesis) -> None:
        self._running.add(synthesis)

    def stopped(self, synthesis: Synthesis) -> None:
        self._running.discard(synthesis)

    def _ended(self, utterance: Utterance) -> None:
        self._utterances.discard(utterance)
        self.observer.ended(utterance.report())
        error = utterance.error
        if error is None:
            return
        if isinstance(error, OutputError):
            self._unusable_total += 1
        elif isinstance(error, EngineFailure) or not isinstance(error, PhonateError):
            self._failures_total += 1
            log.error(
                "request %s: synthesis failed: %s", utterance.request.request_id, error,
                exc_info=None if isinstance(error, PhonateError) else error,
            )  # fmt: skip

    @property
    def vitals(self) -> Vitals:
        """An engine in this process lives as long as whoever asks."""
        return self.engine.vitals if isinstance(self.engine, Mortal) else Vitals(True, {})

    @property
    def ready(self) -> bool:
        """A request would be worked on now."""
        return self.state is State.READY and self.vitals.up

    def health(self) -> Health:
        now = time.monotonic()
        waits = [synthesis.stalled_for(now) for synthesis in self._running]
        stalled = any(wait > self.limits.stall_timeout_s for wait in waits)
        vitals = self.vitals
        return Health(
            ok=not stalled and vitals.up and self.state is not State.CLOSED,
            active_requests=self.admission.active,
            queued_requests=self.admission.queued,
            requests_total=self._requests_total,
            synthesis_failures_total=self._failures_total,
            unusable_outputs_total=self._unusable_total,
            last_progress_age_ms=round(max(waits) * 1000) if waits else None,
            stalled=stalled,
            engine_up=vitals.up,
            engine_restarts_total=sum(vitals.restarts.values()),
        )

    async def drain(self, timeout_s: float) -> None:
        """Take no more work, let running utterances finish, then cancel what is left."""
        if self.state in (State.DRAINING, State.CLOSED):
            return
        self.state = State.DRAINING
        self.admission.close("The server is shutting down.")
        tasks = [utterance.task for utterance in self._utterances]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)
        for utterance in list(self._utterances):
            utterance.cancel("shutdown")

    async def close(self, timeout_s: float = 5.0) -> None:
        """Drain without patience, wait for the engine's threads, and free the engine. An engine
        that does not come back in time is left alone: freeing it under its feet would crash."""
        await self.drain(0)
        self.state = State.CLOSED
        ends = [asyncio.ensure_future(synthesis.wait_ended()) for synthesis in self._running]
        if ends:
            _, late = await asyncio.wait(ends, timeout=timeout_s)
            for end in late:
                end.cancel()
            if late:
                log.error("%d syntheses did not end; the engine is not freed", len(late))
                return
        with contextlib.suppress(Exception):
            await asyncio.to_thread(self.engine.close)
