"""The built-in voice, one client, streamed over HTTP.

The server's own share is the time until the client has its first byte, less what the engine itself
needed for its first chunk, which the server tells in `Server-Timing`.
"""

from __future__ import annotations

import re
import statistics
import time

import httpx
from common import SERVE, server

TEXTS = {
    "a word": "Hello!",
    "a sentence": "The quick brown fox jumps over the lazy dog near the river bank.",
    "a paragraph": (
        "It was late in the evening when the train finally arrived. The platform was empty, and "
        "the lamps threw long shadows over the rails. She took her bag, looked around once more, "
        "and walked slowly towards the town."
    ),
}


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


def run(runs: int) -> None:
    print("\n### The built-in voice, one client, streamed over HTTP\n")
    print("| text | audio | first audio | real-time factor | of it the server |")
    print("|---|---|---|---|---|")
    results: dict[str, list[Timed]] = {name: [] for name in TEXTS}
    with server(*SERVE) as up, httpx.Client(base_url=up.address, timeout=60) as client:
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
