"""Requests at once: what a batch gains, and how long the first chunk takes then.

The model and the libraries are those of engine.py; each library has a process of its own, in
turns, loaded for 8 requests at once.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from pathlib import Path

from engine import model_files

from phonate.engine.qwen.library_search import candidates

FRAMES = 16
COUNTS = (1, 2, 4, 8)
WORKER = Path(__file__).with_name("lanes_worker.py")


def quantile(values: list[float], q: float) -> float:
    """The smallest value that at least a part q of all does not exceed."""
    return sorted(values)[math.ceil(q * len(values)) - 1]


def run(runs: int) -> None:
    print(f"\n### Requests at once, 0.6B Q8_0, random weights, {FRAMES} frames each, streamed\n")
    libraries = [name for name, _ in candidates()]
    if not libraries:
        print("No native library is installed.")
        return
    talker, codec = model_files()
    factors: dict[tuple[str, int], list[float]] = {}
    firsts: dict[tuple[str, int], list[float]] = {}
    for _ in range(min(runs, 3)):
        for name in libraries:
            worker = [sys.executable, str(WORKER), name, str(talker), str(codec), str(FRAMES)]
            worker += [str(count) for count in COUNTS]
            answer = subprocess.run(worker, capture_output=True, text=True, check=True)
            for count, told in json.loads(answer.stdout.splitlines()[-1]).items():
                factors.setdefault((name, int(count)), []).append(told["factor"])
                firsts.setdefault((name, int(count)), []).extend(told["first_s"])
    print("| library | at once | seconds per second of audio, all together | against one |", end="")
    print(" first chunk p50 | p99 |")
    print("|---|---|---|---|---|---|")
    for name in libraries:
        for count in COUNTS:
            factor = statistics.median(factors[name, count])
            gain = statistics.median(factors[name, COUNTS[0]]) / factor
            first = [quantile(firsts[name, count], q) * 1000 for q in (0.5, 0.99)]
            print(
                f"| {name} | {count} | {factor:.2f} | {gain:.2f} x "
                f"| {first[0]:.0f} ms | {first[1]:.0f} ms |"
            )
