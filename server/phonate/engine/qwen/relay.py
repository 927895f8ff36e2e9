"""Between a native call that must not be held up and a sink that may block.

With several lanes in one context a blocking sink would stall its neighbours. So the call runs on a
thread of its own and fills a queue; the caller's thread empties it into the sink. While the queue
is above its mark `may_go` is False, which a library with a flow callback takes as "wait"; one
without makes the rest of the utterance, whose length is bounded.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from phonate.engine.base import Samples, Sink

T = TypeVar("T")

HIGH_MARK = 25
"""Chunks (of 80 to 320 ms) that may wait for a slow listener: 2 s to 8 s."""


class Relay(Generic[T]):
    """`call` gets a sink that never blocks; its result or exception comes out of `run`."""

    def __init__(self, call: Callable[[Sink], T], *, thread_name: str = "phonate-native") -> None:
        self._call = call
        self._name = thread_name
        self._chunks: queue.SimpleQueue[Samples | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._result: list[T] = []
        self._error: list[BaseException] = []

    def may_go(self) -> bool:
        return self._chunks.qsize() < HIGH_MARK

    def run(self, sink: Sink) -> T:
        """Blocks until the call is over; a refusing or raising sink ends it first."""
        thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        thread.start()
        try:
            while (chunk := self._chunks.get()) is not None:
                if not self._stopped.is_set() and not sink(chunk):
                    self._stopped.set()
        finally:
            self._stopped.set()
            thread.join()
        if self._error:
            raise self._error[0]
        return self._result[0]

    def _put(self, chunk: Samples) -> bool:
        self._chunks.put(chunk)
        return not self._stopped.is_set()

    def _work(self) -> None:
        try:
            self._result.append(self._call(self._put))
        except BaseException as exc:  # carried over to `run`
            self._error.append(exc)
        finally:
            self._chunks.put(None)
