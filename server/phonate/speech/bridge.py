"""The one bridge between an engine's thread and the event loop.

An engine blocks; the loop must not. `Synthesis` runs one engine call on a thread of its own. What
the engine makes is shaped on that thread (cheap, and off the loop) and posted to the loop as int16
blocks. Pausing holds the engine inside its own sink, so that it stands still within one frame.

Each call gets a thread of `threads`, not a pool's: a call that never returns must not keep the
process from ending, nor swallow a worker that others wait for.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from phonate.engine.base import CancelToken, Engine, Samples, SynthesisRequest, SynthesisResult
from phonate.speech.threads import SpareThreads

Block = npt.NDArray[np.int16]

_GATE_POLL_S = 0.02
"""How often a paused engine thread looks at its cancel token."""

_THREADS = SpareThreads("phonate-engine")


class Shaper(Protocol):
    """What happens to audio on the engine's thread; see `audio`."""

    @property
    def enough(self) -> bool:
        """True when the engine should stop by itself: what it makes is not wanted."""
        ...

    def feed(self, samples: Samples) -> Block: ...

    def finish(self) -> Block: ...


class Synthesis:
    """One engine call: start it, iterate its blocks on the loop, then look at `result`.

    The thread may outlive the iteration (a reader that left, an engine that is slow to notice):
    `on_done` is called on the loop when it has really ended, and that is when a slot is free.
    """

    def __init__(
        self,
        engine: Engine,
        request: SynthesisRequest,
        shaper: Shaper,
        token: CancelToken,
        on_done: Callable[[], None] = lambda: None,
        name: str = "",
    ) -> None:
        self.name = name
        self._engine = engine
        self._request = request
        self._shaper = shaper
        self._on_done = on_done
        self.token = token
        self.result: SynthesisResult | None = None
        self.error: BaseException | None = None
        self.samples_made = 0
        self.last_progress = time.monotonic()
        self.first_chunk_s: float | None = None
        """Seconds from start to the engine's first chunk."""
        self._loop = asyncio.get_running_loop()
        self._blocks: asyncio.Queue[Block | None] = asyncio.Queue()
        self._open = threading.Event()
        self._open.set()
        self._quiet = asyncio.Event()
        self._pauses = 0
        self._ended = asyncio.Event()

    def start(self) -> None:
        self._started = self.last_progress = time.monotonic()
        _THREADS.run(partial(contextvars.copy_context().run, self._run))

    async def blocks(self) -> AsyncGenerator[Block, None]:
        """Shaped audio as it is made. Raises what the engine raised."""
        while (block := await self._blocks.get()) is not None:
            if block.size:
                yield block
        if self.error is not None:
            raise self.error

    def pause(self) -> None:
        """Hold the engine at its next chunk; `quiescent` tells when it stands still."""
        self._pauses += 1
        self._quiet.clear()
        self._open.clear()

    def resume(self) -> None:
        self.last_progress = time.monotonic()
        self._open.set()

    @property
    def paused(self) -> bool:
        return not self._open.is_set()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    async def quiescent(self) -> None:
        """Return once the engine stands still: held by a pause, or done."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._quiet, self._ended)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def wait_ended(self) -> None:
        """Return once the thread is gone."""
        await self._ended.wait()

    def stalled_for(self, now: float) -> float:
        """Seconds without progress, 0 once done and while it stands still as it was told. An engine
        that was told to stand still, or to stop, and does not is as stuck as any."""
        as_told = self.paused and self._quiet.is_set() and not self.token.is_set
        return 0.0 if as_told or self.ended else now - self.last_progress

    # On the engine's thread -------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self.result = self._engine.synthesize(self._request, self._sink, self.token)
            self._post(self._blocks.put_nowait, self._shaper.finish())
        except BaseException as error:
            self.error = error
        finally:
            self._post(self._end)

    def _sink(self, samples: Samples) -> bool:
        self.last_progress = time.monotonic()
        if self.first_chunk_s is None:
            self.first_chunk_s = self.last_progress - self._started
        self.samples_made += len(samples)
        self._post(self._blocks.put_nowait, self._shaper.feed(samples))
        self._stand_still_while_paused()
        return not self.token.is_set and not self._shaper.enough

    def _stand_still_while_paused(self) -> None:
        told = -1
        while not self._open.is_set() and not self.token.is_set:
            # A resume and a pause in quick succession are a new pause, to be told about anew.
            if told != self._pauses:
                told = self._pauses
                self._post(self._stands_still, told)
            self._open.wait(_GATE_POLL_S)
        if told >= 0:
            self.last_progress = time.monotonic()

    def _post(self, call: Callable[..., None], *args: object) -> None:
        # The loop is closed when the server ended while the engine was still busy: nobody listens.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *args)

    def _stands_still(self, pause: int) -> None:
        # A late notice of an earlier pause says nothing about this one.
        if pause == self._pauses and self.paused:
            self._quiet.set()

    def _end(self) -> None:
        self._ended.set()
        self._blocks.put_nowait(None)
        self._on_done()
