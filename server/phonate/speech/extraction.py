"""One engine call that listens to a recording, on a thread of its own like a `bridge.Synthesis`.

Not on the loop's common threads: a call that never returns would keep the process from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
from collections.abc import Callable
from functools import partial

from phonate.engine.base import Engine, Reference, Samples


class Extraction:
    """Start it, await `result`. `on_done` is called on the loop when the thread has really ended,
    which may be long after whoever waited has left."""

    name = "a recording"

    def __init__(
        self, engine: Engine, audio: Samples, text: str | None, on_done: Callable[[], None]
    ) -> None:
        self._work = partial(engine.extract_voice, audio, text)
        self._on_done = on_done
        self._loop = asyncio.get_running_loop()
        self._result: asyncio.Future[Reference] = self._loop.create_future()
        self._ended = asyncio.Event()
        self._started = time.monotonic()

    def start(self) -> None:
        run = partial(contextvars.copy_context().run, self._run)
        threading.Thread(target=run, name="phonate-extract", daemon=True).start()

    async def result(self) -> Reference:
        """Raises what the engine raised."""
        return await asyncio.shield(self._result)

    def stalled_for(self, now: float) -> float:
        """Seconds since it began: the engine does not tell how far it is."""
        return 0.0 if self._ended.is_set() else now - self._started

    async def wait_ended(self) -> None:
        await self._ended.wait()

    def _run(self) -> None:
        try:
            made = self._work()
        except BaseException as error:
            self._post(self._end, None, error)
        else:
            self._post(self._end, made, None)

    def _post(self, call: Callable[..., None], *args: object) -> None:
        # The loop is closed when the server ended while the engine was still busy.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *args)

    def _end(self, made: Reference | None, error: BaseException | None) -> None:
        self._ended.set()
        self._on_done()
        if error is not None:
            self._result.set_exception(error)
            self._result.exception()  # Seen: nobody may be waiting any more.
        elif made is not None:
            self._result.set_result(made)
