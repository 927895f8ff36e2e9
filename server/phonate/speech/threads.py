"""Threads for calls that may never return, kept for the next call.

A pool would lose a worker to every call that hangs, and would wait for it when the process ends.
Here such a thread is simply never seen again: the next call gets another, and all are daemons.
A spare one is woken in a tenth of the time that starting one takes, 0.2 ms in which the event loop
would stand still: `Thread.start` waits until the new thread runs.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

Call: TypeAlias = Callable[[], None]

MAX_SPARE = 8
"""Threads that wait for a next call; more of them end."""


class SpareThreads:
    """Safe from any thread. A call must not raise. `name`: of its threads while they are busy."""

    def __init__(self, name: str, max_spare: int = MAX_SPARE) -> None:
        self._name = name
        self._max_spare = max_spare
        self._spare: deque[queue.SimpleQueue[Call]] = deque()
        self._parking = threading.Lock()

    def run(self, call: Call) -> None:
        """Begin `call` on a thread of its own and return."""
        try:
            calls = self._spare.pop()
        except IndexError:
            calls = queue.SimpleQueue()
            threading.Thread(target=self._work, args=(calls,), daemon=True).start()
        calls.put(call)

    def _work(self, calls: queue.SimpleQueue[Call]) -> None:
        thread = threading.current_thread()
        while True:
            thread.name = f"{self._name}-spare"
            call = calls.get()
            thread.name = self._name
            call()
            del call  # It holds the audio of an utterance.
            with self._parking:
                if len(self._spare) >= self._max_spare:
                    return
                self._spare.append(calls)
