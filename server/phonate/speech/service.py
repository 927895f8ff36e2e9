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
from phonate.speech.extraction import Extraction
from phonate.speech.observer import Observer, Report
from phonate.speech.request import SpeechRequest
from phonate.speech.shaping import SoundOptions
from phonate.speech.utterance import Utterance
from phonate.speech.watch import EngineCall, StallWatch

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
        self._running: set[EngineCall] = set()
        self._utterances: set[Utterance] = set()
        self._requests_total = 0
        self._failures_total = 0
        self._unusable_total = 0
        watch = StallWatch(lambda: self._running, limits.stall_timeout_s, self.observer.stalled)
        self._watching = asyncio.ensure_future(watch.run())

    async def warm_up(self) -> None:
        """Let the engine do what is slow the first time."""
        await asyncio.to_thread(self.engine.warm_up)

    async def start(self) -> None:
        """Warm the engine up; ready afterwards."""
        await self.warm_up()
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

        def done() -> None:
            # Not when the caller is done, but when the engine is: a caller may leave early.
            self.stopped(listening)
            slot.release()

        listening = Extraction(self.engine, audio, text, done)
        self.started(listening)
        listening.start()
        return await listening.result()

    def started(self, call: EngineCall) -> None:
        self._running.add(call)

    def stopped(self, call: EngineCall) -> None:
        self._running.discard(call)

    def _ended(self, utterance: Utterance) -> None:
        self._utterances.discard(utterance)
        report = utterance.report()
        self.observer.ended(report)
        _log(utterance, report)
        error = utterance.error
        if error is None:
            return
        if isinstance(error, OutputError):
            self._unusable_total += 1
        elif isinstance(error, EngineFailure) or not isinstance(error, PhonateError):
            self._failures_total += 1
            log.error(
                "request %s: synthesis failed: %s", utterance.request.request_id,
                # Words that are not ours may quote the text: the log's filter looks at those.
                error if isinstance(error, PhonateError) else type(error).__name__,
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
        waits = [synthesis.stalled_for(now) for synthesis in tuple(self._running)]
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

    @property
    def speaking(self) -> bool:
        """Whether any utterance is not over yet, running or waiting."""
        return bool(self._utterances)

    def begin_drain(self) -> None:
        """Take no more work, and send away what waits; what runs goes on."""
        if self.state not in (State.DRAINING, State.CLOSED):
            self.state = State.DRAINING
            self.admission.close("The server is shutting down.")

    def cancel_all(self, reason: str) -> None:
        for utterance in list(self._utterances):
            utterance.cancel(reason)

    async def drain(self, timeout_s: float) -> None:
        """Take no more work, let running utterances finish, then cancel what is left."""
        if self.state in (State.DRAINING, State.CLOSED):
            return
        self.begin_drain()
        tasks = [utterance.task for utterance in self._utterances]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)
        self.cancel_all("shutdown")

    async def close(self, timeout_s: float = 5.0) -> None:
        """Drain without patience, wait for the engine's threads, and free the engine. An engine
        that does not come back in time is left alone: freeing it under its feet would crash."""
        self._watching.cancel()
        await self.drain(0)
        self.cancel_all("shutdown")
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


def _log(utterance: Utterance, report: Report) -> None:
    """The synthesis log: how it went, never what was said."""
    request = utterance.request
    fields = {
        "request_id": request.request_id,
        "outcome": report.outcome,
        "cause": report.cause or None,
        "voice": request.voice,
        "language": request.language,
        "chars": len(request.text),
        "audio_s": round(report.audio_s, 3),
        "queued_ms": round(report.queued_s * 1000, 1),
        "first_audio_ms": None
        if report.first_audio_s is None
        else round(report.first_audio_s * 1e3, 1),
        "speaking_ms": round(report.speaking_s * 1000, 1),
        "frames": report.n_frames,
    }
    log.info(
        "request %s: %s%s, %.2f s of audio for %d characters, queued %.0f ms, first audio %s, "
        "done %.0f ms",
        request.request_id, report.outcome, f" ({report.cause})" if report.cause else "",
        report.audio_s, len(request.text), report.queued_s * 1000,
        "none" if report.first_audio_s is None else f"{report.first_audio_s * 1000:.0f} ms",
        report.speaking_s * 1000, extra=fields,
    )  # fmt: skip
