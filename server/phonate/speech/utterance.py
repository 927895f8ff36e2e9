"""One utterance: text in, shaped int16 blocks out, from the queue to the last sample.

The work runs as a task of its own, so that the engine never waits for a reader: blocks gather in
a queue, and the engine's slot is free as soon as the engine is done. Only when a reader falls more
than `LEAD_S` behind in a text of several fragments does the task pause between two of them,
and then it gives its slot to others meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from phonate.engine.base import CancelToken, FinishReason, SynthesisRequest, SynthesisResult
from phonate.errors import (
    Cancelled,
    EngineFailure,
    InternalError,
    InvalidRequest,
    OutputError,
    PhonateError,
    Timeout,
    TooLarge,
)
from phonate.speech.admission import Slot
from phonate.speech.bridge import Block, Synthesis
from phonate.speech.budget import token_budget
from phonate.speech.fragments import Fragment, split
from phonate.speech.observer import Fact, Report, Stage, outcome_of
from phonate.speech.request import SpeechRequest, draw_seed
from phonate.speech.shaping import ShapedFragment, Shaping
from phonate.speech.stopwatch import Stopwatch

if TYPE_CHECKING:
    from phonate.speech.service import SpeechService

log = logging.getLogger("phonate.speech")

_LOOK_EVERY_S = 0.02
"""The least time between two looks at a deadline that stands still."""

_AUDIBLE = 164
"""|int16| of the first sample that counts as sound: 0.005, the default --silence-threshold."""

LEAD_S = 60.0
"""Seconds of audio that may wait for a slow reader before the next fragment is begun."""


@dataclass(frozen=True, slots=True, eq=False)
class _Attempt:
    """One engine call for one fragment, and what came of it."""

    shaped: ShapedFragment
    result: SynthesisResult | None
    error: OutputError | InvalidRequest | None
    """It made nothing: silence, or this part of the text cannot be spoken."""
    over_budget: bool
    """It reached a budget that was ours, not the client's."""

    @property
    def spoiled(self) -> bool:
        """Worth another try with another seed."""
        if isinstance(self.error, InvalidRequest):
            return False
        return self.over_budget or self.shaped.runaway is not None or not self.shaped.audible


class Utterance:
    """See the module's text. Its facts (seed, finish_reason, counts) are final once `blocks()`
    has ended."""

    def __init__(self, service: SpeechService, request: SpeechRequest) -> None:
        self._service = service
        self.request = request
        begin_with = request.first_seed if request.seed is None else request.seed
        self.seed = draw_seed() if begin_with is None else begin_with
        self.error: BaseException | None = None
        self.finish_reason: FinishReason = "stop"
        self.n_frames = 0
        self.n_text_tokens = 0
        self.skipped_text = ""
        self.queued_s = 0.0
        """Seconds that were spent waiting for the engine's slot."""
        self.first_audio_s: float | None = None
        """Seconds from admission to the first block."""
        self.engine_first_chunk_s: float | None = None
        """Seconds from the engine's start to its first chunk."""
        self._onset_s: float | None = None
        self.n_samples = 0
        """Samples handed out so far, at `request.sample_rate`."""
        self._time = Stopwatch()
        self._admitted = self._time.now()
        self._token = CancelToken()
        self._queue: asyncio.Queue[Block | None] = asyncio.Queue()
        self._unread = 0
        self._shaping = self._new_shaping()
        self._caught_up = asyncio.Event()
        self._retried = False
        self._silence: OutputError | InvalidRequest | None = None
        self._slot: Slot | None = None
        self._synthesis: Synthesis | None = None
        self.task = asyncio.ensure_future(self._run())
        # Not a `finally` of `_run`: a task that is cancelled before its first turn never runs.
        self.task.add_done_callback(self._finish)

    def report(self) -> Report:
        """How it went, once it has ended."""
        outcome, cause = outcome_of(self.error, self.finish_reason)
        made = self.n_samples + self._unread
        return Report(
            outcome=outcome,
            cause=cause,
            queued_s=self.queued_s,
            first_audio_s=self.first_audio_s,
            onset_s=self._onset_s,
            speaking_s=max(0.0, self._time.now() - self._admitted - self.queued_s),
            audio_s=made / self.request.sample_rate,
            n_frames=self.n_frames,
        )

    # For the edges ----------------------------------------------------------------------------

    def stage(self, name: str, **facts: Fact) -> AbstractContextManager[Stage]:
        """A part of the work that somebody may watch; see `Observer`."""
        return self._service.observer.stage(name, **facts)

    async def blocks(self) -> AsyncGenerator[Block, None]:
        """int16 audio at `request.sample_rate`. Raises a PhonateError for what went wrong, once
        what came before it has been handed out."""
        while (block := await self._queue.get()) is not None:
            self._unread -= len(block)
            self.n_samples += len(block)
            self._caught_up.set()
            yield block
        if isinstance(self.error, PhonateError):
            raise self.error
        if self.error is not None:  # its details are logged, and nobody else's business
            raise InternalError(self.request.request_id) from self.error

    def cancel(self, reason: str) -> None:
        """Nobody listens any more: the engine stops within one frame. Harmless afterwards."""
        self._token.set(reason)
        self.task.cancel()

    def pause(self) -> None:
        """Let the engine stand still at its next chunk, and begin nothing new."""
        self._time.pause()
        if self._synthesis is not None:
            self._synthesis.pause()

    def resume(self) -> None:
        self._time.resume()
        if self._synthesis is not None:
            self._synthesis.resume()

    async def quiescent(self) -> None:
        """Return once the engine stands still for this utterance, or does not work for it."""
        if self._synthesis is not None:
            await self._synthesis.quiescent()

    @property
    def holds_slot(self) -> bool:
        """Others may wait for it."""
        return self._slot is not None

    # The journey ------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._speak()
        except Exception as error:
            self.error = error

    def _finish(self, task: asyncio.Future[None]) -> None:
        if task.cancelled():
            self.error = Cancelled(self._token.reason or "cancelled")
        self._token.set("ended")
        self._give_slot_up()
        self._queue.put_nowait(None)

    async def _speak(self) -> None:
        fragments = self._fragments()
        deadline = self._admitted + self._service.limits.synthesis_timeout_s
        await self._take_slot(deadline, admitted=self.request.admitted)
        self.queued_s = self._time.now() - self._admitted
        for index, fragment in enumerate(fragments):
            if index:
                await self._let_reader_catch_up()
            last = index == len(fragments) - 1
            pause_s = 0.0 if last else self._service.sound.pause_after(fragment)
            with self.stage("fragment", index=index, characters=len(fragment.text)):
                await self._speak_fragment(fragment, pause_s, first=index == 0)
            if self.finish_reason != "stop":
                break
        self._give_slot_up()
        self._emit(await asyncio.to_thread(self._shaping.finish))
        if not self._shaping.audible:
            raise self._silence or OutputError(
                "The engine finished without audible audio for this text. "
                "Try another text, voice or seed."
            )

    def _new_shaping(self) -> Shaping:
        info = self._service.engine.info
        sound = self._service.sound
        if not self.request.startup_buffer:
            sound = replace(sound, sound=replace(sound.sound, startup_ms=0.0))
        return Shaping(
            sound,
            info.sample_rate,
            sample_rate=self.request.sample_rate,
            speed=self.request.speed,
            watched=info.takes_sampling,
            max_samples=self._service.limits.max_output_bytes // 2,
        )

    def _fragments(self) -> list[Fragment]:
        request, limit = self.request, self._service.engine.info.max_text_chars
        if request.split == "none" or limit is None:
            limit = len(request.text) + 1
        fragments = split(request.text, max_chars=limit)
        # "." alone is no fragment to speak, but a client that sends it wants to hear something.
        return [f for f in fragments if f.spoken] or fragments

    async def _speak_fragment(self, fragment: Fragment, pause_s: float, *, first: bool) -> None:
        attempt = await self._attempt(fragment, pause_s)
        if attempt.spoiled and self._may_retry(first):
            log.info("request %s: a second try with a new seed", self.request.request_id)
            self._retried = True
            self.seed = draw_seed()
            if first:
                self._shaping = self._new_shaping()
            attempt = await self._attempt(fragment, pause_s)
        if attempt.error is not None:
            # Passed over in a longer text; what is to blame if nothing at all is heard.
            self._silence = attempt.error
            return
        self._emit(await asyncio.to_thread(attempt.shaped.release))
        self._account(attempt)

    def _may_retry(self, first: bool) -> bool:
        """Only with a seed of our choice, once, and while nothing of the attempt has left."""
        nothing_left = self.request.whole or (first and self.n_samples + self._unread == 0)
        return self.request.seed is None and not self._retried and nothing_left

    async def _attempt(self, fragment: Fragment, pause_s: float) -> _Attempt:
        text = fragment.speech or fragment.text
        budget, ours = self._budget(text)
        shaped = self._shaping.fragment(text, pause_s, hold=self.request.whole)
        synthesis = Synthesis(
            self._service.engine,
            self._engine_request(text, budget),
            shaped,
            self._token,
            on_done=lambda: self._synthesis_ended(synthesis),
            name=self.request.request_id,
        )
        self._synthesis = synthesis
        self._service.started(synthesis)
        if self._time.paused:
            synthesis.pause()
        try:
            with self.stage("engine", engine=self._service.engine.info.name) as stage:
                synthesis.start()
                await self._listen(synthesis)
                stage.note(first_chunk_s=synthesis.first_chunk_s, **_facts(synthesis.result))
        except OutputError as error:
            return _Attempt(shaped, None, error, over_budget=False)
        except InvalidRequest as error:
            if error.param != "input":
                raise
            return _Attempt(shaped, None, error, over_budget=False)
        if shaped.too_long:
            raise self._too_long()
        result = synthesis.result
        if result is None:
            raise EngineFailure("The engine ended without a result.")
        if result.finish_reason == "cancelled" and not shaped.enough:
            if self._token.reason is None:
                raise EngineFailure("The engine stopped by itself in the middle of the text.")
            raise Cancelled(self._token.reason)
        return _Attempt(shaped, result, None, over_budget=ours and result.finish_reason == "length")

    async def _listen(self, synthesis: Synthesis) -> None:
        """Pass blocks on until the synthesis ends or its time is up."""
        timeout = self._service.limits.synthesis_timeout_s
        deadline = (self._time.now() if self.n_frames else self._admitted) + timeout
        blocks = synthesis.blocks()
        while True:
            try:
                block = await self._within(deadline, blocks.__anext__())
            except StopAsyncIteration:
                return
            except asyncio.TimeoutError:
                self._token.set("timeout")
                raise Timeout(
                    f"The synthesis did not finish within {timeout:g} s (--synthesis-timeout). "
                    "Send less text at a time, or try again when the server is less busy."
                ) from None
            if self.engine_first_chunk_s is None:
                self.engine_first_chunk_s = synthesis.first_chunk_s
            self._emit(block)

    async def _within(self, deadline: float, block: Awaitable[Block]) -> Block:
        """`block`, unless `deadline` passes, on the clock that stands still while paused."""
        pending = asyncio.ensure_future(block)
        try:
            while not pending.done():
                left = deadline - self._time.now()
                if left <= 0:
                    raise asyncio.TimeoutError
                await asyncio.wait({pending}, timeout=max(left, _LOOK_EVERY_S))
            return pending.result()
        finally:
            pending.cancel()

    def _budget(self, text: str) -> tuple[int | None, bool]:
        """Codec frames that this fragment may take, and whether the limit is ours."""
        info = self._service.engine.info
        if self.request.max_new_tokens is not None:
            return max(1, self.request.max_new_tokens - self.n_frames), False
        if not info.takes_sampling:
            return None, False
        return token_budget(text, info.frame_rate), True

    def _engine_request(self, text: str, budget: int | None) -> SynthesisRequest:
        wanted = self.request
        return SynthesisRequest(
            text=text,
            speaker=wanted.speaker,
            reference=wanted.reference,
            language=wanted.language,
            instructions=wanted.instructions,
            seed=self.seed,
            max_new_tokens=budget,
            sampling=wanted.sampling,
            clone_mode=wanted.clone_mode,
            text_layout=wanted.text_layout,
            initial_codec_chunk_frames=wanted.initial_codec_chunk_frames,
        )

    def _account(self, attempt: _Attempt) -> None:
        result = attempt.result
        assert result is not None
        # A synthesis that ran away was cut short, which a client must be able to see.
        self.finish_reason = "length" if attempt.shaped.enough else result.finish_reason
        self.n_frames += result.n_frames
        self.n_text_tokens += result.n_text_tokens
        self.skipped_text = f"{self.skipped_text} {result.skipped_text}".strip()

    def _emit(self, block: Block) -> None:
        if not block.size:
            return
        made = (self.n_samples + self._unread + len(block)) * 2
        if made > self._service.limits.max_output_bytes:
            raise self._too_long()
        if self.first_audio_s is None:
            self.first_audio_s = self._time.now() - self._admitted
        if self._onset_s is None:
            self._listen_for_onset(block)
        self._unread += len(block)
        self._queue.put_nowait(block)

    def _listen_for_onset(self, block: Block) -> None:
        loud = np.flatnonzero(np.abs(block.astype(np.int32)) >= _AUDIBLE)
        if loud.size:
            before = self.n_samples + self._unread + int(loud[0])
            self._onset_s = (self.first_audio_s or 0.0) + before / self.request.sample_rate

    def _too_long(self) -> TooLarge:
        return TooLarge(
            f"The audio is longer than {self._service.limits.max_output_bytes} bytes of PCM "
            "(--max-output-bytes). Send the text in several requests.",
            param="input",
        )

    # The slot ---------------------------------------------------------------------------------

    async def _take_slot(self, deadline: float | None, *, admitted: bool = False) -> None:
        while True:
            admission = self._service.admission
            with self.stage("admission", waiting=admission.queued):
                slot = await admission.acquire(self.request.key, deadline, admitted=admitted)
            if not self._time.paused:
                self._slot = slot
                return
            # Not while the listener pauses: others may be waiting.
            slot.release()
            await self._time.until_running()
            deadline, admitted = None, True

    async def _let_reader_catch_up(self) -> None:
        lead = LEAD_S * self.request.sample_rate
        if self._unread <= lead or self.request.whole:
            return
        self._give_slot_up()
        while self._unread > lead / 2:
            self._caught_up.clear()
            await self._caught_up.wait()
        await self._take_slot(None, admitted=True)

    def _synthesis_ended(self, synthesis: Synthesis) -> None:
        self._service.stopped(synthesis)
        self._synthesis = None
        if self.task.done():
            self._give_slot_up()

    def _give_slot_up(self) -> None:
        """Free the slot, or leave that to `_synthesis_ended` while the engine still works."""
        if self._slot is not None and self._synthesis is None:
            self._slot.release()
            self._slot = None


def _facts(result: SynthesisResult | None) -> dict[str, Fact]:
    if result is None:
        return {}
    return {"frames": result.n_frames, "finish_reason": result.finish_reason}
