"""A server under a service manager: tells it how things are, and rereads what it may on SIGHUP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable

from phonate.notify import Notifier

log = logging.getLogger("phonate.serve")


class Supervised:
    """`healthy`: asked before each sign of life, so that a stuck engine ends in a restart.
    `reload` blocks and may raise. Signs of life come from the loop: a stuck loop sends none."""

    def __init__(
        self, notifier: Notifier, healthy: Callable[[], bool], reload: Callable[[], None]
    ) -> None:
        self._notifier = notifier
        self._healthy = healthy
        self._reload = reload
        self._tasks: set[asyncio.Task[None]] = set()
        self._status = ""

    def started(self, status: str) -> None:
        """Call on the loop, once connections are accepted."""
        self._status = status
        self._notifier.ready(status)
        if self._notifier.watchdog_s is not None:
            self._keep(self._watchdog(self._notifier.watchdog_s))
        with contextlib.suppress(AttributeError, NotImplementedError, RuntimeError, ValueError):
            # Not on Windows, and not in a thread that is not the main one.
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.hangup)

    def stopping(self) -> None:
        self._notifier.stopping()

    def ended(self) -> None:
        for task in self._tasks:
            task.cancel()

    def hangup(self) -> None:
        self._keep(self._do_reload())

    async def _do_reload(self) -> None:
        self._notifier.reloading()
        try:
            await asyncio.to_thread(self._reload)
            log.info("reloaded: keys and voices")
        except Exception:
            log.exception("the reload failed; what was in force stays")
        self._notifier.ready(self._status)

    async def _watchdog(self, limit_s: float) -> None:
        # At twice the rate that is asked for, as sd_watchdog_enabled(3) advises.
        ill = False
        while True:
            if self._healthy():
                self._notifier.alive()
                ill = False
            elif not ill:
                ill = True
                log.error("not healthy: the service manager gets no sign of life")
            await asyncio.sleep(limit_s / 2)

    def _keep(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
