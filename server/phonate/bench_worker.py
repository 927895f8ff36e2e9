"""One engine in a process of its own, for `phonate bench`: speaks when told to.

    python bench_worker.py '{"kind": "qwen", "talker": ..., "codec": ..., "library": ..., ...}'

Reads numbers of frames, one a line; answers each with a line of JSON. Run as a file, so that it
also works in an interpreter that has vox-tts but not phonate.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

TEXT = (
    "The quick brown fox jumps over the lazy dog, and the river runs on towards the sea, "
    "past the old mill and the two bridges, as it has done for a thousand years."
)
SAMPLE_RATE = 24000


def memory_mb() -> float:
    """The most this process has held."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
    return 0.0


def open_qwen(job: dict[str, Any]) -> tuple[Callable[[int, Callable[[int], None]], None], Any]:
    import numpy as np

    from phonate.engine.base import CancelToken, Reference, SynthesisRequest
    from phonate.engine.qwen.context import ContextOptions
    from phonate.engine.qwen.costs import stage_times
    from phonate.engine.qwen.engine import QwenEngine
    from phonate.engine.qwen.library_search import find_library

    options = ContextOptions(threads=job["threads"], precision=job["precision"])
    library = find_library(job["library"])
    engine = QwenEngine(Path(job["talker"]), Path(job["codec"]), library=library, options=options)
    voice: dict[str, Any] = {}
    if engine.info.embedding_dim:
        numbers = np.random.default_rng(0).standard_normal(engine.info.embedding_dim)
        voice["reference"] = Reference((numbers * 0.05).astype(np.float32))
    elif engine.info.needs_instructions:
        voice["instructions"] = "A calm voice."

    def speak(frames: int, took: Callable[[int], None]) -> None:
        def sink(samples: Any) -> bool:
            took(len(samples))
            return True

        request = SynthesisRequest(TEXT, seed=1, max_new_tokens=frames, **voice)
        engine.synthesize(request, sink, CancelToken())

    def facts() -> dict[str, Any]:
        times, cost = stage_times(engine.library), engine.frame_cost()
        fields = {name: getattr(times, name) for name in times.__slots__} if times else {}
        costs = {name: getattr(cost, name) for name in cost.__slots__} if cost else {}
        return {"stages": fields, "cost": costs}

    return speak, facts


def open_vox(job: dict[str, Any]) -> tuple[Callable[[int, Callable[[int], None]], None], Any]:
    import numpy as np
    import vox  # type: ignore[import-not-found,unused-ignore]

    engine = vox.Engine(job["vox_model"], device="cpu", threads=job["threads"] or 0)
    noise = np.random.default_rng(0).normal(0, 0.05, 3 * SAMPLE_RATE).astype(np.float32)
    voice = engine.clone_voice((noise, SAMPLE_RATE), xvector_only=True)

    def speak(frames: int, took: Callable[[int], None]) -> None:
        for chunk in engine.stream(TEXT, voice, max_frames=frames, seed=1):
            took(len(chunk))

    return speak, dict


def turn(speak: Any, facts: Any, frames: int) -> dict[str, Any]:
    """One utterance: its figures."""
    chunks: list[tuple[float, int]] = []
    start, cpu = time.monotonic(), time.process_time()
    speak(frames, lambda n: chunks.append((time.monotonic() - start, n)))
    wall, cpu = time.monotonic() - start, time.process_time() - cpu
    if not chunks:
        raise SystemExit("the engine made no sound")
    seconds = sum(n for _, n in chunks) / SAMPLE_RATE
    gaps = [(at - before) / (n / SAMPLE_RATE) for (before, _), (at, n) in pairwise(chunks)]
    return {
        "factor": wall / seconds,
        "cpu_factor": cpu / seconds,
        "first_ms": 1000 * chunks[0][0],
        "chunk_factors": gaps,
        "memory_mb": memory_mb(),
        **facts(),
    }


def main(job: dict[str, Any]) -> None:
    start = time.monotonic()
    speak, facts = (open_vox if job["kind"] == "vox" else open_qwen)(job)
    print(json.dumps({"load_s": time.monotonic() - start}), flush=True)
    for line in sys.stdin:
        print(json.dumps(turn(speak, facts, int(line))), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
