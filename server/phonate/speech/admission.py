"""Who may use the engine, and when: a bounded queue in front of a fixed number of slots.

First in, first out for one key; between keys the queue takes turns, so that a client with a
hundred requests waiting delays a client with one by one request, not by a hundred. With several
slots a free one goes to the waiting key that holds the fewest, so that a client who filled them all
does not get the next one too. A full queue is refused at once, with a Retry-After that comes from
how long slots were held lately.

A slot is held by the engine's work, not by the client's connection: it is free again when the
engine is done with it, however slow the reader is (see `bridge`).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from phonate.errors import Busy, NotReady, Timeout

_SMOOTHING = 0.2
"""Weight of the newest hold time in the running mean behind Retry-After."""


@dataclass(slots=True)
class Lane:
    """How one of the slots was used so far."""

    n_holds: int = 0
    held_s: float = 0.0
    """Of holds that are over."""
    busy: bool = False


class Slot:
    """The right to one engine call at a time. Release it exactly when the engine is idle again;
    releasing twice is harmless."""

    def __init__(self, admission: Admission, key: str, lane: int) -> None:
        self.lane = lane
        """Its number: 0 to max_active - 1, the lowest that was free."""
        self.key = key
        self._admission = admission
        self._since = admission.clock()
        self._held = True

    def release(self) -> None:
        if self._held:
            self._held = False
            self._admission._released(self, self._admission.clock() - self._since)


class Admission:
    """See the module's text. Belongs to one event loop; not thread-safe.

    max_active: slots. max_queued: waiting requests beyond them (0: nobody waits).
    """

    def __init__(
        self, max_active: int, max_queued: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.clock = clock
        self._max_active = max_active
        self._max_queued = max_queued
        self.lanes = tuple(Lane() for _ in range(max_active))
        self._held_by: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[Slot]]] = OrderedDict()
        self._mean_hold_s = 1.0
        self._closed: str | None = None
        self._admitted: set[asyncio.Future[Slot]] = set()
        """Those who wait for a second time: `close` leaves them their place."""

    @property
    def active(self) -> int:
        return self._held_by.total()

    @property
    def queued(self) -> int:
        return sum(len(queue) for queue in self._waiting.values())

    def close(self, why: str) -> None:
        """Refuse newcomers and whoever waits for a first slot; running work goes on, also where it
        gave its slot up for a while."""
        self._closed = why
        for key, queue in list(self._waiting.items()):
            for waiter in list(queue):
                if waiter not in self._admitted:
                    self._forget(key, waiter)
                    if not waiter.done():
                        waiter.set_exception(NotReady(why, retry_after_s=5))

    def retry_after_s(self) -> float:
        """About when a newcomer would find a place."""
        return self._mean_hold_s * (self.queued + 1) / self._max_active

    async def acquire(
        self, key: str = "", deadline: float | None = None, *, admitted: bool = False
    ) -> Slot:
        """Wait for a slot. `key` says whose turn it is, `deadline` is on `clock`. `admitted`: a
        request that had a slot already and gave it up for a while; it may always wait again.

        Raises Busy (queue full), NotReady (closed), Timeout (deadline passed while waiting).
        """
        if admitted:
            return await self._wait(key, deadline, admitted) if self._full() else self._take(key)
        if self._closed is not None:
            raise NotReady(self._closed, retry_after_s=5)
        if not self._full():
            return self._take(key)
        if self.queued >= self._max_queued:
            raise Busy(
                f"All {self._max_active} synthesis slots are taken and {self.queued} requests wait "
                f"(--max-queued-requests {self._max_queued}). Try again later.",
                retry_after_s=self.retry_after_s(),
            )
        return await self._wait(key, deadline)

    def _full(self) -> bool:
        return self.active >= self._max_active or bool(self._waiting)

    def _take(self, key: str) -> Slot:
        number = next(i for i, lane in enumerate(self.lanes) if not lane.busy)
        self.lanes[number].busy = True
        self._held_by[key] += 1
        return Slot(self, key, number)

    async def _wait(self, key: str, deadline: float | None, admitted: bool = False) -> Slot:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Slot] = loop.create_future()
        self._waiting.setdefault(key, deque()).append(waiter)
        if admitted:
            self._admitted.add(waiter)
        timer = None
        if deadline is not None:
            timer = loop.call_later(max(0.0, deadline - self.clock()), _expire, waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            # The slot may have been handed over in the same turn of the loop: pass it on.
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                waiter.result().release()
            raise
        finally:
            if timer is not None:
                timer.cancel()
            self._admitted.discard(waiter)
            self._forget(key, waiter)

    def _forget(self, key: str, waiter: asyncio.Future[Slot]) -> None:
        queue = self._waiting.get(key)
        if queue is not None:
            if waiter in queue:
                queue.remove(waiter)
            if not queue:
                del self._waiting[key]

    def _released(self, slot: Slot, held_s: float) -> None:
        lane = self.lanes[slot.lane]
        lane.busy = False
        lane.n_holds += 1
        lane.held_s += held_s
        self._held_by[slot.key] -= 1
        if not self._held_by[slot.key]:
            del self._held_by[slot.key]
        self._mean_hold_s += _SMOOTHING * (held_s - self._mean_hold_s)
        while self._waiting and self.active < self._max_active:
            # The first of those that hold the fewest; who was served goes to the end.
            key = min(self._waiting, key=lambda key: self._held_by[key])
            queue = self._waiting[key]
            waiter = queue.popleft()
            if queue:
                self._waiting.move_to_end(key)
            else:
                del self._waiting[key]
            if not waiter.done():
                waiter.set_result(self._take(key))


def _expire(waiter: asyncio.Future[Slot]) -> None:
    if not waiter.done():
        waiter.set_exception(
            Timeout(
                "The request waited in the queue until its deadline (--synthesis-timeout). "
                "The server is busy: try again later."
            )
        )
