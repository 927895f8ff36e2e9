"""The native engine beside the wheel (qwentts.cpp), on a random-weight model of 0.6B in Q8_0.

Each library runs in a process of its own, in turns; x-vector prompt, streaming, 64 frames. Ours
runs exact and fast; what fast costs is told beneath. Weights are random, so the frames are noise,
but the work is the real model's.
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
QUALITY = Path(__file__).parents[2] / "native" / "build" / "release" / "quality_bench"


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
    kinds = [(name, "exact") for name in libraries]
    if libraries[0] == "phonate":
        kinds.insert(1, ("phonate", "fast"))
    results: dict[str, list[dict[str, float]]] = {f"{n}, {p}": [] for n, p in kinds}
    for _ in range(min(runs, 5)):
        for name, precision in kinds:
            worker = [sys.executable, str(WORKER), name, str(talker), str(codec), str(FRAMES)]
            worker.append(precision)
            answer = subprocess.run(worker, capture_output=True, text=True, check=True)
            results[f"{name}, {precision}"].append(json.loads(answer.stdout.splitlines()[-1]))
    print("| library | real-time factor | first chunk | load | memory |")
    print("|---|---|---|---|---|")
    for name, found in results.items():
        middle = {key: statistics.median(r[key] for r in found) for key in found[0]}
        print(
            f"| {name} | {middle['factor']:.2f} | {middle['first_s'] * 1000:.0f} ms "
            f"| {middle['load_s']:.1f} s | {middle['rss_mb']:.0f} MB |"
        )
    names = list(results)
    for name in names[1:]:
        times = statistics.median(
            theirs["factor"] / ours["factor"]
            for theirs, ours in zip(results[name], results[names[0]], strict=True)
        )
        print(f"\n{names[0]} is {times:.2f} times as fast as {name}.")
    if libraries[0] == "phonate":
        print(f"\n{quality(talker, codec)}")


def quality(talker: Path, codec: Path) -> str:
    """What fast costs against exact, on the same inputs and codes."""
    if not QUALITY.exists():
        return f"What fast costs: build {QUALITY.name} first (make native)."
    told = subprocess.run([QUALITY, talker, codec], capture_output=True, text=True, check=True)
    found = json.loads(told.stdout.splitlines()[-1])
    return (
        f"fast against exact, teacher-forced over {found['frames']} frames: code 0 equal in "
        f"{100 * found['code0_equal']:.0f} %, codes 1 to 15 in "
        f"{100 * found['codes_1_15_equal']:.0f} %; the talker's hidden state is off by "
        f"{100 * found['hidden_error']:.1f} %; the codec is the same."
    )
