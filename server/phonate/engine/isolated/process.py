"""One process with an engine in it, seen from the server, and the calls that run there.

A thread reads the frames, another the process's standard error. Neither ever waits for a listener:
a call's frames go into a queue that its own thread empties. What becomes of a process that died or
hangs is the supervisor's business: it counts ticks here, kills and buries.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO

import phonate
from phonate.engine.isolated import values
from phonate.engine.isolated.wire import Frame, Kind, Outgoing, WireError, read_frame
from phonate.engine.qwen.native_log import NativeLog
from phonate.errors import PhonateError
from phonate.settings import ENV_PREFIX, secret_names

log = logging.getLogger("phonate.engine.process")

MAX_LINE = 4096
LAST_LINES = 3
END_GRACE_S = 2.0
"""A process whose output ended is about to be gone; longer than this and it is killed."""
_BACKTRACE = "Fatal Python error"


class RemoteCall:
    """One call in the process, from its own thread on this side."""

    def __init__(self, process: EngineProcess, number: int, patience_s: float) -> None:
        self._process = process
        self.number = number
        self.patience_s = patience_s
        """How long the process may keep the ball."""
        self.frames: queue.SimpleQueue[Frame | PhonateError] = queue.SimpleQueue()
        self.owed = True
        """The process has the ball; else a sink of ours has it."""
        self.ticks = 0
        """Looks of the supervisor while the process had the ball."""

    def next(self, timeout_s: float | None = None) -> Frame | None:
        """None when nothing came in time. Raises what ended the process."""
        try:
            frame = self.frames.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(frame, PhonateError):
            raise frame
        return frame

    def cancel(self, reason: str) -> None:
        self._process.tell(Kind.CANCEL, self.number, {"reason": reason})

    def took(self, more: bool) -> None:
        self.ticks = 0
        self.owed = True
        self._process.tell(Kind.TOOK, self.number, {"more": more})


class EngineProcess:
    """`changed` is called, on some thread, when `answer` is there and when `ended` turns True."""

    def __init__(self, popen: subprocess.Popen[bytes], changed: Callable[[], None]) -> None:
        assert popen.stdin is not None
        assert popen.stdout is not None
        assert popen.stderr is not None
        self._popen = popen
        self._changed = changed
        self._out = Outgoing(popen.stdin)
        self._lock = threading.Lock()
        self._calls: dict[int, RemoteCall] = {}
        self._numbers = itertools.count(1)
        self._failure: Callable[[], PhonateError] | None = None
        self._said: deque[str] = deque(maxlen=LAST_LINES)
        self.answer: Frame | None = None
        """READY or FAILED."""
        self.ended = False
        self.nonsense = ""
        """What came that was no frame."""
        self.silent_ticks = 0
        self._threads = [
            threading.Thread(target=work, args=(pipe,), name=name, daemon=True)
            for work, pipe, name in (
                (self._read, popen.stdout, "phonate-process-frames"),
                (self._listen, popen.stderr, "phonate-process-log"),
            )
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def last_words(self) -> str:
        """The end of its standard error, before the backtrace of a crash."""
        return " / ".join(self._said)

    def tell(
        self, kind: Kind, call: int = 0, fields: values.Fields | None = None, body: bytes = b""
    ) -> None:
        """To a dead process too: its end is noticed elsewhere, once."""
        with contextlib.suppress(OSError):
            self._out.send(kind, call, fields, body)

    def call(self, kind: Kind, packed: values.Packed, patience_s: float) -> RemoteCall:
        """Begin a call; `finish` it in the end. Raises what ended the process."""
        with self._lock:
            if self._failure is not None:
                raise self._failure()
            call = RemoteCall(self, next(self._numbers), patience_s)
            self._calls[call.number] = call
        try:
            self.tell(kind, call.number, *packed)
        except BaseException:  # what cannot be packed
            self.finish(call)
            raise
        return call

    def finish(self, call: RemoteCall) -> None:
        with self._lock:
            self._calls.pop(call.number, None)

    # For the supervisor -----------------------------------------------------------------------

    def tick(self) -> None:
        """Time has passed. Ticks, not clocks: while the server itself was stopped, nothing that it
        should have heard from the process counts against that."""
        self.silent_ticks += 1
        with self._lock:
            for call in self._calls.values():
                call.ticks += call.owed

    def stalled(self, tick_s: float) -> RemoteCall | None:
        """A call that has waited for the process longer than it may."""
        with self._lock:
            calls = list(self._calls.values())
        return next((call for call in calls if call.ticks * tick_s > call.patience_s), None)

    def kill(self) -> None:
        self._popen.kill()

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended by then."""
        try:
            self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def bury(self) -> int:
        """The exit code, once the process is gone and nothing of it is left."""
        if not self.wait(END_GRACE_S):
            self.kill()
            self._popen.wait()
        self._out.close()
        # The error output can be held open by processes of the process's own.
        for thread in self._threads:
            thread.join(1.0)
        return int(self._popen.returncode)

    def fail_calls(self, failure: Callable[[], PhonateError]) -> None:
        """Running calls, and any later one, raise what `failure` makes."""
        with self._lock:
            self._failure = failure
            calls = list(self._calls.values())
        for call in calls:
            call.frames.put(failure())

    # Its two voices ---------------------------------------------------------------------------

    def _read(self, pipe: IO[bytes]) -> None:
        try:
            with pipe:
                while (frame := read_frame(pipe)) is not None:
                    self.silent_ticks = 0
                    self._take(frame)
        except (WireError, KeyError, TypeError, ValueError) as error:
            self.nonsense = str(error)
            self.kill()
        except OSError as error:
            log.warning("the engine's process cannot be read: %s", error)
            self.kill()
        finally:
            self.ended = True
            self._changed()

    def _take(self, frame: Frame) -> None:
        if frame.kind in (Kind.CHUNK, Kind.DONE, Kind.ERROR):
            with self._lock:
                call = self._calls.get(frame.call)
            if call is not None:
                call.owed = False
                call.frames.put(frame)
        elif frame.kind in (Kind.READY, Kind.FAILED):
            self.answer = frame
            self._changed()
        elif frame.kind is Kind.LOG:
            fields = frame.fields
            logging.getLogger(str(fields["logger"])).log(
                int(fields["level"]), "%s", fields["message"]
            )
        elif frame.kind is not Kind.BEAT:
            raise WireError(f"{frame.kind.name} is not for the server")

    def _listen(self, pipe: IO[bytes]) -> None:
        limited = NativeLog(log)
        crashed = False
        with pipe:
            while line := pipe.readline(MAX_LINE):
                text = line.decode("utf-8", "replace").strip()
                crashed = crashed or text.startswith(_BACKTRACE)
                if text and not crashed:
                    self._said.append(text)
                limited.write(logging.INFO, text)


def launch(factory: str, changed: Callable[[], None]) -> EngineProcess:
    """Start a process; BUILD is still to be told. Raises OSError."""
    root = str(Path(phonate.__file__).parent.parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    secret = {ENV_PREFIX + name.upper() for name in secret_names()}
    environment = {name: value for name, value in os.environ.items() if name not in secret}
    # Without the last one an abort of ggml starts a debugger.
    environment |= {"PYTHONPATH": path, "GGML_NO_BACKTRACE": "1"}
    level = logging.getLogger().getEffectiveLevel()
    command = [sys.executable, "-m", "phonate.engine.isolated.child", factory]
    popen = subprocess.Popen(  # noqa: S603 - our own command
        [*command, str(level), str(sys.getswitchinterval())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,  # Ctrl-C is for the server, which closes its engine
    )
    return EngineProcess(popen, changed)


def ending(code: int) -> str:
    """An exit code in words: "killed by SIGABRT", "exit code 3"."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
