"""One library, one model, one process: prints its figures as JSON on the last line."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from phonate.engine.base import CancelToken, Reference, SynthesisRequest
from phonate.engine.qwen.context import ContextOptions
from phonate.engine.qwen.engine import QwenEngine
from phonate.engine.qwen.library_search import find_library

TEXT = "The quick brown fox jumps over the lazy dog, and the river runs on towards the sea."


def main(name: str, talker: str, codec: str, frames: int, precision: Any) -> None:
    begun = time.monotonic()
    options = ContextOptions(precision=precision)
    engine = QwenEngine(Path(talker), Path(codec), library=find_library(name), options=options)
    loaded = time.monotonic() - begun
    rng = np.random.default_rng(0)
    embedding = (rng.standard_normal(engine.info.embedding_dim) * 0.05).astype(np.float32)

    def speak(n_frames: int) -> tuple[float, float, int]:
        """(seconds to the first chunk, seconds in all, samples)"""
        start = time.monotonic()
        first, n_samples = 0.0, 0

        def sink(samples: np.ndarray) -> bool:
            nonlocal first, n_samples
            first = first or time.monotonic() - start
            n_samples += len(samples)
            return True

        request = SynthesisRequest(
            TEXT, reference=Reference(embedding), language="english", seed=1,
            max_new_tokens=n_frames,
        )  # fmt: skip
        engine.synthesize(request, sink, CancelToken())
        return first, time.monotonic() - start, n_samples

    speak(4)
    first, total, n_samples = speak(frames)
    figures = {
        "factor": total / (n_samples / 24000),
        "first_s": first,
        "load_s": loaded,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(figures))
    engine.close()


main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
