"""Log lines of a native library, into Python's logging, without drowning it.

The library writes from its own threads, some lines per request. The same line again within a
window is counted instead of written, and there is a ceiling on lines per window; the count comes
out with the next window. The last error line of each thread is kept: some libraries say why a call
failed only there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

# qt.h: debug 0, info 1, warn 2, error 3. A library's "info" is a server's debug.
LEVELS = {0: logging.DEBUG, 1: logging.DEBUG, 2: logging.WARNING, 3: logging.ERROR}
WINDOW_S = 1.0
MAX_LINES = 50
MAX_CHARS = 1000


class NativeLog:
    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._lock = threading.Lock()
        self._window_start = -WINDOW_S
        self._seen: set[str] = set()
        self._held_back = 0
        self._thread = threading.local()
        self._last_error = ""

    def line(self, level: int, message: str) -> None:
        """One line, any thread. Never raises for bad input: levels beyond the known are errors."""
        severity = LEVELS.get(level, logging.ERROR)
        message = message.strip()[:MAX_CHARS]
        if severity >= logging.ERROR:
            self._last_error = message
            self._thread.error = message
        self.write(severity, message)

    def write(self, severity: int, message: str) -> None:
        """The same for a line whose level is known already, without remembering it."""
        message = message[:MAX_CHARS]
        if not message or not self._logger.isEnabledFor(severity):
            return
        with self._lock:
            held_back = self._roll()
            if message in self._seen or len(self._seen) >= MAX_LINES:
                self._held_back += 1
                passed = False
            else:
                self._seen.add(message)
                passed = True
        if held_back:
            self._logger.log(severity, "%d native log lines were held back", held_back)
        if passed:
            self._logger.log(severity, "%s", message)

    def _roll(self) -> int:
        """Begins a new window when it is time; returns what the old one held back."""
        now = self._clock()
        if now - self._window_start < WINDOW_S:
            return 0
        self._window_start = now
        self._seen.clear()
        held_back, self._held_back = self._held_back, 0
        return held_back

    def forget_error(self) -> None:
        """Before a call: what is found afterwards belongs to it."""
        self._thread.error = ""
        self._last_error = ""

    def error_of_call(self) -> str:
        """The last error line since `forget_error`, this thread's if it wrote one."""
        return getattr(self._thread, "error", "") or self._last_error
