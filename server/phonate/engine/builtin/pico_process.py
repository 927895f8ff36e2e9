"""Pico at arm's length: a child process that can be killed.

The runtime hangs on some texts, holds the interpreter's lock while it speaks, cannot be stopped,
and reads memory it never wrote (`pico_worker` deals with that). One process serves all five
voices, one text at a time.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import phonate
from phonate.engine.base import CancelToken
from phonate.engine.builtin.pico_worker import MAX_SECONDS
from phonate.errors import EngineFailure

POLL_S = 0.02
"""How long a set token may go unnoticed."""
WORKER = (sys.executable, "-m", "phonate.engine.builtin.pico_worker")


class PicoProcess:
    """A `pico_worker`, started when first needed, and again after it was killed or has died."""

    def __init__(self, command: Sequence[str] = WORKER, max_seconds: float = MAX_SECONDS) -> None:
        self._command = command
        self._max_seconds = max_seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._replies: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._finalizer: weakref.finalize[Any, Any] | None = None

    def speak(self, text: str, voice: str, token: CancelToken) -> bytes:
        """s16le mono 16 kHz; b"" when the token was set. Raises EngineFailure."""
        while not self._lock.acquire(timeout=POLL_S):
            if token.is_set:
                return b""
        try:
            return self._speak(text, voice, token)
        finally:
            self._lock.release()

    def close(self) -> None:
        with self._lock:
            self._kill()

    def _speak(self, text: str, voice: str, token: CancelToken) -> bytes:
        process = self._running()
        request = json.dumps({"text": text, "voice": voice}).encode("ascii") + b"\n"
        try:
            assert process.stdin is not None
            process.stdin.write(request)
            process.stdin.flush()
        except OSError as error:
            self._kill()
            raise EngineFailure(f"The Pico voice could not be reached: {error}") from error
        deadline = time.monotonic() + self._max_seconds
        while True:
            try:
                line = self._replies.get(timeout=POLL_S)
                break
            except queue.Empty:
                if token.is_set:
                    self._kill()
                    return b""
                if time.monotonic() > deadline:
                    self._kill()
                    raise EngineFailure(
                        f"The Pico voice gave no answer within {self._max_seconds:g} s and was "
                        "stopped. Another wording of the text may help."
                    ) from None
        if not line:
            self._kill()
            raise EngineFailure("The Pico voice ended in the middle of a text.")
        reply = json.loads(line)
        if "error" in reply:
            raise EngineFailure(f"The Pico voice failed: {reply['error']}")
        return base64.b64decode(reply["pcm"])

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._kill()
        # The package's own folder first: it need not be installed.
        root = str(Path(phonate.__file__).parent.parent)
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        process = subprocess.Popen(  # noqa: S603 - our own command
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is for the server, which closes its engine
        )
        self._process = process
        self._replies = queue.SimpleQueue()
        threading.Thread(
            target=_pump, args=(process, self._replies), name="pico-replies", daemon=True
        ).start()
        self._finalizer = weakref.finalize(self, _end, process)
        return process

    def _kill(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        self._process = None


def _pump(process: subprocess.Popen[bytes], replies: queue.SimpleQueue[bytes]) -> None:
    """Lines of the process to the queue; b"" at its end."""
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            replies.put(line)
    replies.put(b"")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stdin is not None:
        with contextlib.suppress(OSError):  # it flushes, to a dead process
            process.stdin.close()
