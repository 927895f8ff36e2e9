"""One writer at a time, among the threads of this process and among processes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from phonate.errors import Busy, StorageError
from phonate.voices.folders import FILE_MODE
from phonate.voices.inventory import why

FILE_NAME = ".lock"
TIMEOUT_S = 10.0
"""A write takes milliseconds; who waits longer has met a hanging process."""


class WriterLock:
    """Of one shelf. May be taken again by the thread that holds it."""

    def __init__(
        self, root: Path, noun: str, *, read_only: bool = False, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._path = root / FILE_NAME
        self._noun = noun
        self._read_only = read_only
        self._timeout_s = timeout_s
        self._threads = threading.RLock()
        self._held = False

    @contextlib.contextmanager
    def hold(self, done: str) -> Iterator[None]:
        """`done` is for messages: "could not be saved". Raises Busy when another process holds the
        lock for too long; turns OSError, of the lock and of what is done, into a StorageError
        without a path."""
        if self._read_only:
            raise StorageError(f"Nothing can be {done}: the {self._noun}s are read-only here.")
        with self._threads:
            if self._held:
                yield
                return
            try:
                with self._file_lock():
                    self._held = True
                    try:
                        yield
                    finally:
                        self._held = False
            except Timeout as error:
                raise Busy(f"Another process is writing the {self._noun}s. Try again.") from error
            except OSError as error:
                raise StorageError(
                    f"The {self._noun} could not be {done}: {why(error)}."
                ) from error

    def _file_lock(self) -> FileLock:
        return FileLock(self._path, timeout=self._timeout_s, mode=FILE_MODE, thread_local=False)
