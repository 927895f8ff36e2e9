"""What the engine's process makes in tests, and that process as a thread.

`scripted` does what the text says: abort, exit, bug, hang, long, print, log; a tone for others.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from phonate.engine.base import Engine, SynthesisRequest
from phonate.engine.builtin.engine import BuiltinEngine
from phonate.engine.isolated.child import Child, Factory
from phonate.engine.isolated.engine import IsolatedEngine
from phonate.engine.isolated.process import EngineProcess
from phonate.engine.isolated.supervisor import Timing
from phonate.engine.isolated.wire import Outgoing
from phonate.engine.scripted import DEFAULT_INFO, Emit, Fail, ScriptedEngine, Step, Wait
from phonate.errors import SetupError
from phonate.settings import Settings, load

FAILS_WHILE = "PHONATE_TEST_FAILS_WHILE"
"""A variable that names a file: while it is there, `scripted` cannot be made."""
QUICK = Timing(beat=0.05, silent=2, first_backoff=0.02, last_backoff=0.2, healthy=0.5, wait=5)
CLONER = dataclasses.replace(DEFAULT_INFO, can_clone=True, can_icl=True, embedding_dim=8)


def act(request: SynthesisRequest) -> Sequence[Step] | None:
    text = request.text
    if text in ("abort", "Abort right here."):
        os.abort()
    if text == "exit":
        os._exit(3)
    if text == "print":
        print("to standard output", flush=True)
        print("to standard error", file=sys.stderr, flush=True)
        os.system("echo from a process of its own; cat")
    if text == "log":
        logging.getLogger("phonate.engine.scripted").warning("told by %s", "the process")
    steps: dict[str, Sequence[Step]] = {
        "bug": [Fail(KeyError("of ours"))],
        "hang": [Emit.tone(0.08), Wait(3600, cancellable=False)],
        "long": [Emit.tone(math.inf, pace_s=0.005)],
    }
    return steps.get(text)


def scripted(settings: Settings, model: Any) -> Engine:
    flag = os.environ.get(FAILS_WHILE)
    if flag and Path(flag).exists():
        raise SetupError(f"--talker {flag}: cannot be loaded.", param="talker")
    assert not settings.isolate_engine
    assert settings.api_key is None, "keys are not for the engine's process"
    return ScriptedEngine(act, dataclasses.replace(CLONER, max_batch=settings.max_batch))


def builtin(settings: Settings, model: Any) -> Engine:
    return BuiltinEngine(pico=False)


def impossible(settings: Settings, model: Any) -> Engine:
    raise SetupError("--talker x: no such file.", param="talker")


def faulty(settings: Settings, model: Any) -> Engine:
    raise KeyError("a bug in the factory")


def aborting(settings: Settings, model: Any) -> Engine:
    print("GGML_ASSERT(n_head > 0) failed", file=sys.stderr, flush=True)
    os.abort()


def isolated(name: str = "scripted", timing: Timing = QUICK, **options: Any) -> IsolatedEngine:
    settings = load({"voice_dir": "unused", **options}, {}).settings
    return IsolatedEngine(settings, factory=f"isolated_engines:{name}", timing=timing)


def pid_of(engine: IsolatedEngine) -> int:
    process = engine._supervisor._process
    assert process is not None
    return process.pid


class ThreadPopen:
    """Looks like a Popen; a thread of this process is the child."""

    pid = 0

    def __init__(self, factory: Factory) -> None:
        (frames, stdin), (stdout, out), (stderr, err) = os.pipe(), os.pipe(), os.pipe()
        self.stdin = os.fdopen(stdin, "wb", buffering=0)
        self.stdout, self.stderr = os.fdopen(stdout, "rb"), os.fdopen(stderr, "rb")
        self.returncode: int | None = None

        def serve() -> None:
            outgoing = Outgoing(os.fdopen(out, "wb", buffering=0))
            with os.fdopen(frames, "rb") as incoming, os.fdopen(err, "wb"):
                Child(incoming, outgoing, factory).run()
            outgoing.close()
            self.returncode = 0

        self._thread = threading.Thread(target=serve, daemon=True)
        self._thread.start()

    def wait(self, timeout: float | None = None) -> int:
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise subprocess.TimeoutExpired("a thread", timeout or 0)
        return 0

    def kill(self) -> None:
        self.stdin.close()


def in_thread(engine: Engine, **options: Any) -> IsolatedEngine:
    """The proxy over an engine that a test can look into: same pipes, no process."""

    def launch(changed: Callable[[], None]) -> EngineProcess:
        return EngineProcess(ThreadPopen(lambda settings, model: engine), changed)  # type: ignore[arg-type]

    return IsolatedEngine(load(options, {}).settings, launcher=launch)
