"""One utterance: text in, shaped int16 blocks out, from the queue to the last sample.

The work runs as a task of its own, so that the engine never waits for a reader: blocks gather in
a queue, and the engine's slot is free as soon as the engine is done. Only when a reader falls more
than `LEAD_S` behind in a text of several fragments does the task pause between two of them,
and then it gives its slot to others meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from phonate.engine.base import CancelToken, FinishReason, SynthesisRequest
from phonate.errors import Cancelled, EngineFailure, OutputError, Timeout, TooLarge
from phonate.speech.admission import Slot
from phonate.speech.bridge import Block, Synthesis
from phonate.speech.fragments import Fragment, split
from phonate.speech.request import SpeechRequest, draw_seed
from phonate.speech.shaping import Shaping

if TYPE_CHECKING:
    from phonate.speech.service import SpeechService

LEAD_S = 60.0
"""Seconds of audio that may wait for a slow reader before the next fragment is begun."""


class Utterance:
    """See the module's text. `facts` are final once `blocks()` has ended."""

    def __init__(self, service: SpeechService, request: SpeechRequest) -> None:
        self._service = service
        self.request = request
        self.seed = request.seed if request.seed is not None else draw_seed()
        self.error: BaseException | None = None
        self.finish_reason: FinishReason = "stop"
        self.n_frames = 0
        self.n_text_tokens = 0
        self.skipped_text = ""
        self.queued_s = 0.0
        """Seconds that were spent waiting for the engine's slot."""
        self.engine_first_chunk_s: float | None = None
        """Seconds from the engine's start to its first chunk."""
        self.n_samples = 0
        """Samples handed out so far, at `request.sample_rate`."""
        self._admitted = time.monotonic()
        self._token = CancelToken()
        self._queue: asyncio.Queue[Block | None] = asyncio.Queue()
        self._unread = 0
        self._caught_up = asyncio.Event()
        self._slot: Slot | None = None
        self._synthesis: Synthesis | None = None
        self.task = asyncio.ensure_future(self._run())
        # Not a `finally` of `_run`: a task that is cancelled before its first turn never runs.
        self.task.add_done_callback(self._finish)

    # For the edges ----------------------------------------------------------------------------

    async def blocks(self) -> AsyncGenerator[Block, None]:
        """int16 audio at `request.sample_rate`. Raises what went wrong, once what came before it
        has been handed out."""
        while (block := await self._queue.get()) is not None:
            self._unread -= len(block)
            self.n_samples += len(block)
            self._caught_up.set()
            yield block
        if self.error is not None:
            raise self.error

    def cancel(self, reason: str) -> None:
        """Nobody listens any more: the engine stops within one frame. Harmless afterwards."""
        self._token.set(reason)
        self.task.cancel()

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
        await self._take_slot(self._admitted + self._service.limits.synthesis_timeout_s)
        self.queued_s = time.monotonic() - self._admitted
        shaping = Shaping(
            self._service.sound,
            self._service.engine.info.sample_rate,
            sample_rate=self.request.sample_rate,
            speed=self.request.speed,
        )
        for index, fragment in enumerate(fragments):
            if index:
                await self._let_reader_catch_up()
            await self._speak_fragment(fragment, shaping, last=index == len(fragments) - 1)
            if self.finish_reason != "stop":
                break
        self._give_slot_up()
        self._emit(await asyncio.to_thread(shaping.finish))
        if not shaping.audible:
            raise OutputError(
                "The engine finished without audible audio for this text. "
                "Try another text, voice or seed."
            )

    def _fragments(self) -> list[Fragment]:
        request, limit = self.request, self._service.engine.info.max_text_chars
        if request.split == "none" or limit is None:
            limit = len(request.text) + 1
        fragments = split(request.text, max_chars=limit)
        # "." alone is no fragment to speak, but a client that sends it wants to hear something.
        return [f for f in fragments if f.spoken] or fragments

    async def _speak_fragment(self, fragment: Fragment, shaping: Shaping, *, last: bool) -> None:
        synthesis = Synthesis(
            self._service.engine,
            self._engine_request(fragment),
            shaping.fragment(0.0 if last else self._service.sound.pause_after(fragment)),
            self._token,
            on_done=lambda: self._synthesis_ended(synthesis),
        )
        self._service.started(synthesis)
        self._synthesis = synthesis
        synthesis.start()
        timeout = self._service.limits.synthesis_timeout_s
        deadline = (time.monotonic() if self.n_frames else self._admitted) + timeout
        blocks = synthesis.blocks()
        while True:
            try:
                block = await asyncio.wait_for(
                    blocks.__anext__(), max(0.0, deadline - time.monotonic())
                )
            except StopAsyncIteration:
                break
            except asyncio.TimeoutError:
                self._token.set("timeout")
                raise Timeout(
                    f"The synthesis did not finish within {timeout:g} s (--synthesis-timeout). "
                    "Send less text at a time, or try again when the server is less busy."
                ) from None
            if self.engine_first_chunk_s is None:
                self.engine_first_chunk_s = synthesis.first_chunk_s
            self._emit(block)
        self._account(synthesis)

    def _engine_request(self, fragment: Fragment) -> SynthesisRequest:
        wanted = self.request
        return SynthesisRequest(
            text=fragment.speech or fragment.text,
            speaker=wanted.speaker,
            reference=wanted.reference,
            language=wanted.language,
            instructions=wanted.instructions,
            seed=self.seed,
            max_new_tokens=wanted.max_new_tokens,
            sampling=wanted.sampling,
            clone_mode=wanted.clone_mode,
            text_layout=wanted.text_layout,
            initial_codec_chunk_frames=wanted.initial_codec_chunk_frames,
        )

    def _account(self, synthesis: Synthesis) -> None:
        result = synthesis.result
        if result is None:
            raise EngineFailure("The engine ended without a result.")
        if result.finish_reason == "cancelled":
            raise Cancelled(self._token.reason or "engine")
        self.finish_reason = result.finish_reason
        self.n_frames += result.n_frames
        self.n_text_tokens += result.n_text_tokens
        self.skipped_text += result.skipped_text

    def _emit(self, block: Block) -> None:
        if not block.size:
            return
        made = (self.n_samples + self._unread + len(block)) * 2
        if made > self._service.limits.max_output_bytes:
            raise TooLarge(
                f"The audio is longer than {self._service.limits.max_output_bytes} bytes of PCM "
                "(--max-output-bytes). Send the text in several requests.",
                param="input",
            )
        self._unread += len(block)
        self._queue.put_nowait(block)

    # The slot ---------------------------------------------------------------------------------

    async def _take_slot(self, deadline: float | None, *, admitted: bool = False) -> None:
        self._slot = await self._service.admission.acquire(
            self.request.key, deadline, admitted=admitted
        )

    async def _let_reader_catch_up(self) -> None:
        lead = LEAD_S * self.request.sample_rate
        if self._unread <= lead:
            return
        self._give_slot_up()
        while self._unread > lead / 2:
            self._caught_up.clear()
            await self._caught_up.wait()
        await self._take_slot(None, admitted=True)

    def _synthesis_ended(self, synthesis: Synthesis) -> None:
        self._service.stopped(synthesis)
        self._synthesis = None
        if self.task.done() or self._token.is_set:
            self._give_slot_up()

    def _give_slot_up(self) -> None:
        """Free the slot, or leave that to `_synthesis_ended` while the engine still works."""
        if self._slot is not None and self._synthesis is None:
            self._slot.release()
            self._slot = None
