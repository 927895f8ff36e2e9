"""What the sections share: the machine, the server in a process of its own, its memory and CPU."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


def machine() -> str:
    """Name and number of processors."""
    model = platform.processor() or "unknown processor"
    with contextlib.suppress(OSError):
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
        model = found[1] if found else model
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def commit() -> str:
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() or "unknown commit"


@dataclass(frozen=True)
class Server:
    address: str
    pid: int

    def cpu_s(self) -> float:
        """User and system seconds of the process so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


SERVE = ("-m", "phonate", "serve", "--port", "0", "--log-level", "error")


@contextlib.contextmanager
def server(*arguments: str) -> Iterator[Server]:
    """A server on a free port, in a process of its own. `arguments`: of the interpreter."""
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(r"listens on (\S+)", line):
                    yield Server(found[1], process.pid)
                    return
            raise SystemExit("The server did not start.")
        finally:
            process.terminate()
