"""What the server adds to a chunk: 50 clients at once on an engine that does no work.

The scripted engine writes the time at which it hands a chunk over into the chunk's samples; the
client takes it off its own clock on arrival (one machine, one monotonic clock).
"""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

import httpx
import numpy as np
from common import server

CLIENTS = 50
SECONDS = 8.0
_OFFSET, _BASE = 1000, 5000
_RANGE = _BASE * _BASE
"""Tenths of a millisecond that two samples can hold."""


def stamp(now: float) -> np.ndarray:
    """80 ms of float samples that say `now`, in pairs of two digits of base 5000."""
    tenths = int(now * 10_000) % _RANGE
    pair = np.array([tenths // _BASE, tenths % _BASE], np.float32) + _OFFSET
    return np.tile(pair / np.float32(32767), 960)


def age_ms(pcm: bytes, now: float) -> float:
    """How long ago the last whole pair in `pcm` was written."""
    high, low = np.frombuffer(pcm[-3840:][:4], "<i2").astype(int) - _OFFSET
    return ((int(now * 10_000) - (high * _BASE + low)) % _RANGE) / 10


async def _client(client: httpx.AsyncClient, format_: str, ages: list[float]) -> int:
    body = {"input": "x " * 100, "response_format": format_}
    n_bytes = 0
    async with client.stream("POST", "/v1/audio/speech", json=body) as answer:
        answer.raise_for_status()
        async for piece in answer.aiter_raw():
            n_bytes += len(piece)
            if format_ == "pcm" and len(piece) % 3840 == 0:
                ages.append(age_ms(piece, time.monotonic()))
    return n_bytes


async def _load(address: str, format_: str, ages: list[float]) -> int:
    limits = httpx.Limits(max_connections=CLIENTS)
    async with httpx.AsyncClient(base_url=address, timeout=120, limits=limits) as client:
        return sum(await asyncio.gather(*(_client(client, format_, ages) for _ in range(CLIENTS))))


def run(runs: int) -> None:
    print(f"\n### The server's own work: {CLIENTS} streams at once, an engine at real time\n")
    print("| format | time added to a chunk, median | p99 | bytes/s | CPU per stream |")
    print("|---|---|---|---|---|")
    script = str(Path(__file__).with_name("stamping_server.py"))
    with server(script, str(CLIENTS), str(SECONDS)) as up:
        for format_ in ("pcm", "mp3"):
            ages: list[float] = []
            cpu, begun = up.cpu_s(), time.monotonic()
            n_bytes = asyncio.run(_load(up.address, format_, ages))
            took = time.monotonic() - begun
            cpu = (up.cpu_s() - cpu) / took / CLIENTS
            added = ("-", "-")
            if ages:
                p99 = statistics.quantiles(ages, n=100)[98]
                added = (f"{statistics.median(ages):.1f} ms", f"{p99:.1f} ms")
            print(f"| {format_} | {added[0]} | {added[1]} | {n_bytes / took:,.0f} | {cpu:.2%} |")
