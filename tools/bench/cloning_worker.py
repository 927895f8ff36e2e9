"""One library, one model, one process: hears a voice and speaks in it; figures as JSON on the
last line."""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from phonate.engine.base import CancelToken, Reference, Samples, SynthesisRequest
from phonate.engine.qwen.engine import QwenEngine
from phonate.engine.qwen.library_search import find_library

SECONDS = 10
SPOKEN = "Past the old mill and the two bridges the river runs on, as it has done for ages."
"""What is said to be heard in the reference: about as long as 10 s allow."""
TEXTS = (
    "The quick brown fox jumps over the lazy dog, and the river runs on towards the sea.",
    "Seven lazy dogs lie in the sun by the old mill, and none of them has seen a fox today.",
    "Over the two bridges and along the river goes the road that leads down to the sea.",
    "A thousand years ago there was no mill here, no bridge, no road, and not even a dog.",
)


def speech() -> Samples:
    """float32 [n], 24 kHz: syllables of a voice of 120 Hz, loud and soft, as a reference is."""
    t = np.arange(SECONDS * 24_000) / 24_000
    voice = sum(np.sin(2 * np.pi * 120 * n * t) / n for n in range(1, 30))
    syllables = np.clip(np.sin(2 * np.pi * 3.5 * t), 0, None)
    return np.asarray(0.1 * voice * syllables, dtype=np.float32)


def main(name: str, talker: str, codec: str) -> None:
    engine = QwenEngine(Path(talker), Path(codec), library=find_library(name))
    audio = speech()
    began = time.monotonic()
    reference = engine.extract_voice(audio, SPOKEN)
    extract_s = time.monotonic() - began

    def first_chunk(text: str, spoken_in: Reference) -> tuple[float, float]:
        """Seconds until it, and of processor time."""
        began, cpu = time.monotonic(), time.process_time()
        first: list[tuple[float, float]] = []

        def sink(samples: Samples) -> bool:
            first.append((time.monotonic() - began, time.process_time() - cpu))
            return False

        request = SynthesisRequest(
            text, reference=spoken_in, language="english", seed=1, max_new_tokens=16
        )
        engine.synthesize(request, sink, CancelToken())
        return first[0]

    # What is slow once in a process is not what a new voice costs.
    first_chunk(TEXTS[0], Reference(reference.embedding))
    new_s, _ = first_chunk(TEXTS[0], reference)
    known = [first_chunk(text, reference) for text in TEXTS[1:]]
    figures = {
        "extract_s": extract_s,
        "new_s": new_s,
        "known_s": statistics.median(wall for wall, _ in known),
        "known_cpu_s": statistics.median(cpu for _, cpu in known),
    }
    print(json.dumps(figures))
    engine.close()


main(*sys.argv[1:])
