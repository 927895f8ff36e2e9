"""The built-in voice, one client, streamed over HTTP.

The server's own share is the time until the client has its first byte, less what the engine itself
needed for its first chunk, which the server tells in `Server-Timing`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import statistics
import time

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
    """One streamed request: seconds to the first byte and to the last, and the engine's part.
    The client is the standard library's, which adds least of its own."""

    def __init__(self, client: http.client.HTTPConnection, text: str) -> None:
        body = json.dumps({"input": text, "response_format": "pcm", "seed": 1})
        begun = time.perf_counter()
        client.request("POST", "/v1/audio/speech", body, {"Content-Type": "application/json"})
        answer = client.getresponse()
        n_bytes = len(answer.read(2))
        self.first = time.perf_counter() - begun
        n_bytes += len(answer.read())
        self.total = time.perf_counter() - begun
        self.audio = n_bytes / 48000
        engine = re.search(r"engine;dur=([\d.]+)", answer.headers["Server-Timing"])
        self.engine = float(engine[1]) / 1000 if engine else 0.0
        self.overhead = self.first - self.engine


def connected(address: str) -> http.client.HTTPConnection:
    host, _, port = address.removeprefix("http://").rpartition(":")
    client = http.client.HTTPConnection(host, int(port), timeout=60)
    client.connect()
    # Head and body of a request leave in two pieces: the second must not wait for an ACK.
    client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def run(runs: int) -> None:
    print("\n### The built-in voice, one client, streamed over HTTP\n")
    print("| text | audio | first audio | real-time factor | of it the server |")
    print("|---|---|---|---|---|")
    results: dict[str, list[Timed]] = {name: [] for name in TEXTS}
    with server(*SERVE) as up, contextlib.closing(connected(up.address)) as client:
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
