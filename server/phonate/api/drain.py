"""Stopping without cutting anybody off: what happens between the first signal and the end.

New work is refused at once (503, and /ready with it), so that load balancers go elsewhere; what
runs gets its time; a WebSocket session is told, speaks what it has, and is closed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from phonate.api.state import State

log = logging.getLogger("phonate.serve")

_LOOK_EVERY_S = 0.02

GOODBYE_S = 1.0
"""For sessions to send their last event after the time is over."""


class Drain:
    """One per process; see the module's text."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._timeout_s = state.settings.shutdown_timeout

    def begin(self) -> None:
        """From here on nothing new is taken."""
        state = self._state
        state.traffic.draining = True
        state.service.begin_drain()
        health = state.service.health()
        log.info(
            "shutting down: %d requests run, %d sessions are open, %g s to finish "
            "(--shutdown-timeout); a second signal ends it at once",
            health.active_requests, len(state.sessions), self._timeout_s,
        )  # fmt: skip
        for session in list(state.sessions):
            session.drain(self._timeout_s)

    async def finish(self) -> None:
        """Return once all is spoken, or the time is over and the rest is cancelled."""
        state = self._state
        if await _until(lambda: not state.sessions and not state.service.speaking, self._timeout_s):
            return
        log.warning(
            "%d sessions and the utterances that still run are cut off", len(state.sessions)
        )
        for session in list(state.sessions):
            session.give_up()
        state.service.cancel_all("shutdown")
        await _until(lambda: not state.sessions, GOODBYE_S)


async def _until(done: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(_LOOK_EVERY_S)
    return True
