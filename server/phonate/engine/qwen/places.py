"""The places at a native context: who may call now, who waits, and how it closes.

At most `width` calls run; the others wait in order of arrival, looking at their own reason to give
up. Work that must be alone takes all places. Closing turns the waiting ones away, and then waits
for the running ones.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from phonate.errors import NotReady

POLL_S = 0.05


class Places:
    def __init__(self, width: int) -> None:
        self.width = width
        self._free = width
        self._closed = False
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()

    @property
    def closed(self) -> bool:
        return self._closed

    @contextmanager
    def taken(self, n_places: int, give_up: Callable[[], bool]) -> Iterator[bool]:
        """Holds `n_places`; yields False, holding none, when `give_up` became true first.
        Raises NotReady once closed."""
        held = self._enter(min(n_places, self.width), give_up)
        try:
            yield held > 0
        finally:
            with self._changed:
                self._free += held
                self._changed.notify_all()

    def _enter(self, n_places: int, give_up: Callable[[], bool]) -> int:
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            try:
                while not self._closed:
                    if give_up():
                        return 0
                    if self._queue[0] is ticket and self._free >= n_places:
                        self._free -= n_places
                        return n_places
                    self._changed.wait(POLL_S)
            finally:
                self._queue.remove(ticket)
                self._changed.notify_all()
        raise NotReady("The engine is shutting down.")

    def close(self) -> None:
        """From now on nobody gets a place."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wait_empty(self, timeout_s: float) -> bool:
        """True when every place was given back in time. For after `close`."""
        until = time.monotonic() + timeout_s
        with self._changed:
            while self._free < self.width:
                left = until - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
            return True
