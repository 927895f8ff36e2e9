"""`make bench`: what this machine does, as the tables of the README.

Each figure is a median over interleaved runs. The server's own share of a request is the time
until the client has its first byte, less what the engine itself needed for its first chunk, which
the server tells in `Server-Timing`.
"""

from __future__ import annotations

import argparse
import contextlib
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

TEXTS = {
    "a word": "Hello!",
    "a sentence": "The quick brown fox jumps over the lazy dog near the river bank.",
    "a paragraph": (
        "It was late in the evening when the train finally arrived. The platform was empty, and "
        "the lamps threw long shadows over the rails. She took her bag, looked around once more, "
        "and walked slowly towards the town."
    ),
}


def machine() -> str:
    """Name and number of processors."""
    model = platform.processor() or "unknown processor"
    with contextlib.suppress(OSError):
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
        model = found[1] if found else model
    import os

    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def commit() -> str:
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() or "unknown commit"


@contextlib.contextmanager
def server(*flags: str) -> Iterator[str]:
    """The address of `phonate serve` on a free port, in a process of its own."""
    command = [sys.executable, "-m", "phonate", "serve", "--port", "0", "--log-level", "error"]
    with subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(r"listens on (\S+)", line):
                    yield found[1]
                    return
            raise SystemExit("The server did not start.")
        finally:
            process.terminate()


class Timed:
    """One streamed request: seconds to the first byte and to the last, and the engine's part."""

    def __init__(self, client: httpx.Client, text: str, response_format: str = "pcm") -> None:
        body = {"input": text, "response_format": response_format, "seed": 1}
        begun = time.perf_counter()
        with client.stream("POST", "/v1/audio/speech", json=body) as answer:
            answer.raise_for_status()
            pieces = answer.iter_raw()
            n_bytes = len(next(pieces))
            self.first = time.perf_counter() - begun
            timing = answer.headers["Server-Timing"]
            n_bytes += sum(map(len, pieces))
        self.total = time.perf_counter() - begun
        self.audio = n_bytes / 48000
        engine = re.search(r"engine;dur=([\d.]+)", timing)
        self.engine = float(engine[1]) / 1000 if engine else 0.0
        self.overhead = self.first - self.engine


def bench_builtin(runs: int) -> None:
    print("\n### The built-in voice, one client, streamed over HTTP\n")
    print("| text | audio | first audio | real-time factor | of it the server |")
    print("|---|---|---|---|---|")
    results: dict[str, list[Timed]] = {name: [] for name in TEXTS}
    with server() as address, httpx.Client(base_url=address, timeout=60) as client:
        for _ in range(runs + 1):
            for name, text in TEXTS.items():
                results[name].append(Timed(client, text))
    for name, timed in results.items():
        kept = timed[1:]
        first = statistics.median(t.first for t in kept)
        factor = statistics.median(t.total / t.audio for t in kept)
        overhead = statistics.median(t.overhead for t in kept)
        print(
            f"| {name} | {kept[0].audio:.1f} s | {first * 1000:.0f} ms | {factor:.3f} "
            f"| {overhead * 1000:.1f} ms |"
        )


SECTIONS = {"builtin": bench_builtin}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", default=list(SECTIONS), help=", ".join(SECTIONS))
    parser.add_argument("--runs", type=int, default=15)
    given = parser.parse_args()
    print(f"{machine()}; phonate {commit()}; medians of {given.runs} runs")
    for name in given.sections:
        SECTIONS[name](given.runs)


if __name__ == "__main__":
    main()
