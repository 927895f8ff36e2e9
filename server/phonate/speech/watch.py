"""An engine that hangs is said to hang: once in the log, in the metrics, and in /health.

Nothing else can be done about a native call from outside. Its slot is not handed out again until
it returns, so that at most `--max-batch` calls can be stuck, and everything else goes on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Protocol

log = logging.getLogger("phonate.speech")


class EngineCall(Protocol):
    """What runs on an engine's thread: a `Synthesis` or an `Extraction`."""

    @property
    def name(self) -> str: ...
    def stalled_for(self, now: float) -> float: ...
    async def wait_ended(self) -> None: ...


class StallWatch:
    """`running` gives the calls of now; `on_stall` is called once for each that hangs."""

    def __init__(
        self,
        running: Callable[[], Iterable[EngineCall]],
        timeout_s: float,
        on_stall: Callable[[], None],
    ) -> None:
        self._running = running
        self._timeout_s = timeout_s
        self._on_stall = on_stall
        self._known: set[EngineCall] = set()

    def look(self, now: float) -> None:
        calls = list(self._running())
        stalled = {call for call in calls if call.stalled_for(now) > self._timeout_s}
        for call in stalled - self._known:
            self._on_stall()
            log.error(
                "request %s: the engine has made no progress for %g s (--stall-timeout). Its slot "
                "stays taken and /health says degraded until it returns; if it does not, restart",
                call.name, self._timeout_s, extra={"request_id": call.name},
            )  # fmt: skip
        for call in self._known - stalled:
            log.warning(
                "request %s: the engine moves again", call.name, extra={"request_id": call.name}
            )
        self._known = stalled

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(min(1.0, self._timeout_s / 4))
            self.look(time.monotonic())
