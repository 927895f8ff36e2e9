"""The WebSocket with the built-in voice: how soon it speaks, pauses and falls silent, and what
many sessions cost."""

from __future__ import annotations

import asyncio
import json
import statistics
import time

import httpx
from common import SERVE, Server, server
from websockets.asyncio.client import ClientConnection, connect

IDLE, ACTIVE = 200, 20
TEXT = "This is a sentence that a model has just begun to write, and it goes on for a while. " * 3


async def _open(address: str) -> ClientConnection:
    url = address.replace("http", "ws") + "/v1/audio/speech-stream"
    socket = await connect(url, compression=None, max_size=None)
    await socket.send(json.dumps({"type": "config"}))
    await _until(socket, "ready")
    return socket


async def _until(socket: ClientConnection, wanted: str) -> float:
    """When an event of this type (or "pcm") came."""
    async for message in socket:
        kind = "pcm" if isinstance(message, bytes) else json.loads(message)["type"]
        if kind == wanted:
            return time.perf_counter()
    raise SystemExit(f"The session ended before {wanted}.")


async def _send(socket: ClientConnection, **event: object) -> float:
    await socket.send(json.dumps(event))
    return time.perf_counter()


async def _first_pcm(address: str) -> float:
    """Seconds from the first text byte to the first audio, text coming word by word."""
    async with await _open(address) as socket:
        begun = time.perf_counter()
        listening = asyncio.ensure_future(_until(socket, "pcm"))
        for word in TEXT.split():
            await _send(socket, type="text", text=word + " ")
            await asyncio.sleep(0.005)
            if listening.done():
                break
        return await listening - begun


async def _pause(address: str) -> float:
    async with await _open(address) as socket:
        await _send(socket, type="text", text=TEXT)
        await _until(socket, "pcm")
        return -await _send(socket, type="pause") + await _until(socket, "paused")


async def _cancel(address: str) -> float:
    """Seconds from the cancel to its acknowledgement, after which nothing more comes."""
    async with await _open(address) as socket:
        await _send(socket, type="text", text=TEXT)
        await _until(socket, "pcm")
        return -await _send(socket, type="cancel") + await _until(socket, "cancelled")


async def _many(up: Server) -> tuple[float, float]:
    """(KiB per idle session, p99 of /health in ms while 20 others speak)."""
    before = up.rss_mb()
    idle = [await _open(up.address) for _ in range(IDLE)]
    per_session = (up.rss_mb() - before) * 1024 / IDLE
    active = [await _open(up.address) for _ in range(ACTIVE)]
    for socket in active:
        await _send(socket, type="text", text=TEXT)
        await _send(socket, type="end")
    drains = [asyncio.ensure_future(_until(socket, "done")) for socket in active]
    delays = []
    async with httpx.AsyncClient(base_url=up.address) as client:
        while not all(drain.done() for drain in drains):
            begun = time.perf_counter()
            (await client.get("/health")).raise_for_status()
            delays.append((time.perf_counter() - begun) * 1000)
            await asyncio.sleep(0.005)
    for socket in (*idle, *active):
        await socket.close()
    return per_session, statistics.quantiles(delays, n=100)[98]


async def _measure(up: Server, runs: int) -> None:
    figures: dict[str, list[float]] = {"first": [], "pause": [], "cancel": []}
    for _ in range(runs):
        figures["first"].append(await _first_pcm(up.address))
        figures["pause"].append(await _pause(up.address))
        figures["cancel"].append(await _cancel(up.address))
    per_session, p99 = await _many(up)
    labels = {
        "first": "first word in to first audio out",
        "pause": "pause to its acknowledgement",
        "cancel": "cancel to silence",
    }
    for key, label in labels.items():
        print(f"| {label} | {statistics.median(figures[key]) * 1000:.0f} ms |")
    print(f"| memory of an idle session ({IDLE} open) | {per_session:.0f} KiB |")
    print(f"| p99 of /health with {IDLE} idle and {ACTIVE} speaking | {p99:.0f} ms |")


def run(runs: int) -> None:
    print("\n### The WebSocket, built-in voice\n")
    print("| what | median |")
    print("|---|---|")
    with server(*SERVE, "--max-queued-requests", "64", "--max-sessions", "300") as up:
        asyncio.run(_measure(up, runs))
