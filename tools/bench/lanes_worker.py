"""One library, one model, one process: N requests at once for each N asked for, as JSON on the
last line: {"N": {"factor": .., "first_s": [..]}}."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import numpy as np

from phonate.engine.base import CancelToken, Reference, SynthesisRequest
from phonate.engine.qwen.context import ContextOptions
from phonate.engine.qwen.engine import QwenEngine
from phonate.engine.qwen.library_search import find_library

TEXT = "The quick brown fox jumps over the lazy dog, and the river runs on towards the sea."


def main(name: str, talker: str, codec: str, frames: int, counts: list[int]) -> None:
    options = ContextOptions(max_batch=max(counts))
    library = find_library(name)
    engine = QwenEngine(Path(talker), Path(codec), library=library, options=options)
    rng = np.random.default_rng(0)
    embedding = (rng.standard_normal(engine.info.embedding_dim) * 0.05).astype(np.float32)

    def speak(seed: int, n_frames: int, heard: list[tuple[float, int]]) -> None:
        """Adds (seconds to the first chunk, samples)."""
        start, first, n_samples = time.monotonic(), 0.0, 0

        def sink(samples: np.ndarray) -> bool:
            nonlocal first, n_samples
            first = first or time.monotonic() - start
            n_samples += len(samples)
            return True

        request = SynthesisRequest(
            TEXT, reference=Reference(embedding), language="english", seed=seed,
            max_new_tokens=n_frames,
        )  # fmt: skip
        engine.synthesize(request, sink, CancelToken())
        heard.append((first, n_samples))

    speak(0, 4, [])
    figures = {}
    for count in counts:
        heard: list[tuple[float, int]] = []
        threads = [
            threading.Thread(target=speak, args=(seed, frames, heard)) for seed in range(count)
        ]
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        total = time.monotonic() - begun
        audio_s = sum(n for _, n in heard) / 24000
        figures[count] = {"factor": total / audio_s, "first_s": [first for first, _ in heard]}
    print(json.dumps(figures))
    engine.close()


main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), [int(n) for n in sys.argv[5:]])
