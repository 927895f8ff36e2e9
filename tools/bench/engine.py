"""The native engine beside the wheel (qwentts.cpp), on a random-weight model of 0.6B in Q8_0.

Each library runs in a process of its own, in turns; x-vector prompt, streaming, 64 frames.
Weights are random, so the frames are noise, but the work is the real model's.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

import platformdirs

from phonate.engine.qwen.library_search import candidates

FRAMES = 64
WORKER = Path(__file__).with_name("engine_worker.py")


def model_files() -> tuple[Path, Path]:
    """Made once and kept in the user's cache: 1.3 GB."""
    folder = Path(platformdirs.user_cache_dir("phonate")) / "bench-0.6b-base-q8_0"
    talker, codec = folder / "talker-Q8_0.gguf", folder / "codec-Q8_0.gguf"
    if not codec.exists():
        command = ["-m", "phonate", "dev", "make-model", "--kind", "base", "--size", "0.6b"]
        subprocess.run([sys.executable, *command, "--type", "Q8_0", "-o", str(folder)], check=True)
    return talker, codec


def run(runs: int) -> None:
    print(f"\n### The native engine, 0.6B Q8_0, random weights, {FRAMES} frames streamed\n")
    libraries = [name for name, _ in candidates()]
    if not libraries:
        print("No native library is installed.")
        return
    talker, codec = model_files()
    results: dict[str, list[dict[str, float]]] = {name: [] for name in libraries}
    for _ in range(min(runs, 5)):
        for name in libraries:
            worker = [sys.executable, str(WORKER), name, str(talker), str(codec), str(FRAMES)]
            answer = subprocess.run(worker, capture_output=True, text=True, check=True)
            results[name].append(json.loads(answer.stdout.splitlines()[-1]))
    print("| library | real-time factor | first chunk | load | memory |")
    print("|---|---|---|---|---|")
    for name, found in results.items():
        middle = {key: statistics.median(r[key] for r in found) for key in found[0]}
        print(
            f"| {name} | {middle['factor']:.2f} | {middle['first_s'] * 1000:.0f} ms "
            f"| {middle['load_s']:.1f} s | {middle['rss_mb']:.0f} MB |"
        )
    if len(libraries) > 1:
        ours, theirs = (
            statistics.median(r["factor"] for r in results[name]) for name in libraries[:2]
        )
        print(f"\n{libraries[0]} is {theirs / ours:.1f} times as fast as {libraries[1]}.")
