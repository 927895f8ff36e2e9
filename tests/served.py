"""A server as a process of its own (`scripted_server.py`), for tests that send signals."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass
class Served:
    address: str
    process: subprocess.Popen[str]
    log: Path

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def signal(self, number: int = signal.SIGTERM) -> float:
        """Send it; when that was."""
        self.process.send_signal(number)
        return time.monotonic()

    def ended(self, timeout_s: float = 20) -> int:
        """Wait for the end; the exit code."""
        return self.process.wait(timeout_s)

    def logged(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def wait_for_log(self, words: str, timeout_s: float = 10) -> None:
        until = time.monotonic() + timeout_s
        while words not in self.logged():
            assert time.monotonic() < until, f"{words!r} was not logged:\n{self.logged()}"
            time.sleep(0.02)


@contextlib.contextmanager
def served(tmp_path: Path, *options: str) -> Iterator[Served]:
    """`options` of `phonate serve`. stderr goes to a file, `log`."""
    log = tmp_path / "server.log"
    command = [sys.executable, str(HERE / "scripted_server.py"), "serve", "--port", "0"]
    command += ["--voice-dir", str(tmp_path / "voices"), *options]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PHONATE_")}
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environ
        ) as process,
    ):
        try:
            assert process.stdout is not None
            greeting = process.stdout.readline()
            found = re.search(r"http://\S+", greeting)
            assert found, f"it did not start: {log.read_text()}"
            yield Served(found[0], process, log)
        finally:
            if process.poll() is None:
                process.kill()
