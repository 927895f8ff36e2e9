"""Cloning from 10 s of speech: hearing the voice, and the first chunk in it, new and known.

The model and the libraries are those of engine.py; each library has a process of its own, in
turns. "New" is the first request with the reference's latents, "known" the median of the next ones,
each with another text.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

from engine import model_files

from phonate.engine.qwen.library_search import candidates

WORKER = Path(__file__).with_name("cloning_worker.py")


def run(runs: int) -> None:
    print("\n### Cloning from 10 s of speech, 0.6B Q8_0, random weights, in context\n")
    libraries = [name for name, _ in candidates()]
    if not libraries:
        print("No native library is installed.")
        return
    talker, codec = model_files()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in libraries}
    for _ in range(min(runs, 3)):
        for name in libraries:
            worker = [sys.executable, str(WORKER), name, str(talker), str(codec)]
            answer = subprocess.run(worker, capture_output=True, text=True, check=True)
            found[name].append(json.loads(answer.stdout.splitlines()[-1]))
    print("| library | hearing the voice | first chunk, voice new | voice known | its CPU time |")
    print("|---|---|---|---|---|")
    for name, turns in found.items():
        middle = {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
        print(
            f"| {name} | {middle['extract_s']:.2f} s | {middle['new_s']:.2f} s "
            f"| {middle['known_s']:.2f} s | {middle['known_cpu_s']:.2f} s |"
        )
