"""A clock that can stand still: time that a client spends on pausing is not the engine's fault."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class Stopwatch:
    """Runs from the start; `now` is in seconds and equals the clock until the first pause."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stood_still = 0.0
        self._since: float | None = None
        self._running = asyncio.Event()
        self._running.set()

    def now(self) -> float:
        return (self._clock() if self._since is None else self._since) - self._stood_still

    @property
    def paused(self) -> bool:
        return self._since is not None

    def pause(self) -> None:
        if self._since is None:
            self._since = self._clock()
            self._running.clear()

    def resume(self) -> None:
        if self._since is not None:
            self._stood_still += self._clock() - self._since
            self._since = None
            self._running.set()

    async def until_running(self) -> None:
        await self._running.wait()
