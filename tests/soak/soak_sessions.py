"""Many WebSocket sessions at once, with clients that behave as clients do.

    python tests/soak/soak_sessions.py [sessions] [at a time] [seed]      (2000, 60, random)

Each client speaks a text of its own and then, by chance, pauses, skips, cancels, stops reading for
a while, or vanishes. Afterwards: the engine's slot is free, nothing waits, no task is left, memory
is flat, and no session got a frame of another (each text has a tone of its own).
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import socket
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
import websockets
from websockets.asyncio.client import connect

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "api"))

from stream_client import PATH, Client

from phonate import settings
from phonate.app import create_app
from phonate.engine.scripted import Emit, ScriptedEngine, duration_of, frequency_of
from phonate.serve import uvicorn_config

WAYS = {
    "patient": 4, "pauses": 2, "toggles": 1, "cancels": 2, "keeps": 1, "skips": 1,
    "vanishes": 2, "leaves": 1, "stops_reading": 1, "nonsense": 1, "silent": 1,
}  # fmt: skip


def script(request: Any) -> list[Emit]:
    """The default tone, at about ten times real time."""
    text = request.text
    return [Emit.tone(duration_of(text), frequency_of(text), pace_s=0.008)]


class Soak:
    """`run` returns how many clients went which way; raises AssertionError for what is wrong."""

    def __init__(self, sessions: int, at_a_time: int, seed: int) -> None:
        self.sessions = sessions
        self.slots = asyncio.Semaphore(at_a_time)
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.heard_whole = 0

    async def run(self) -> Counter[str]:
        engine = ScriptedEngine(script)
        options = {"max_batch": 4, "max_queued_requests": 1000, "max_sessions": 1000,
                   "stream_buffer_seconds": 0.5, "synthesis_timeout": 600}  # fmt: skip
        effective = settings.load(options, {}).settings
        app = create_app(effective, engine)
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn_config(app, effective))
        serving = asyncio.ensure_future(server.serve(sockets=[sock]))
        while not server.started:  # noqa: ASYNC110 (uvicorn has a flag, no event)
            await asyncio.sleep(0.01)
        self.address = f"ws://127.0.0.1:{sock.getsockname()[1]}{PATH}"
        await self._one(-1, "patient")
        before = len(asyncio.all_tasks()), _engine_threads()
        try:
            await asyncio.gather(*(self._admit(n) for n in range(self.sessions)))
            await self._check_quiet(app, engine, before)
        finally:
            server.should_exit = True
            await serving
        return self.counts

    async def _check_quiet(self, app: Any, engine: Any, before: tuple[int, int]) -> None:
        state = app.state.phonate
        admission = state.service.admission
        for _ in range(500):
            busy = admission.active or admission.queued or engine.in_flight or state.sessions
            after = len(asyncio.all_tasks()), _engine_threads()
            if not busy and after <= before:
                break
            await asyncio.sleep(0.02)
        assert not admission.active, "a slot is still held"
        assert not admission.queued, "somebody still waits"
        assert not engine.in_flight, "the engine still works"
        assert not state.sessions, "a session is still open"
        tasks = [repr(task) for task in asyncio.all_tasks()]
        assert after[0] <= before[0], f"tasks are left: {tasks}"
        assert after[1] <= before[1], f"threads are left: {threading.enumerate()}"
        assert state.service.health().ok

    async def _admit(self, n: int) -> None:
        async with self.slots:
            way = self.random.choices(list(WAYS), list(WAYS.values()))[0]
            self.counts[way] += 1
            await asyncio.wait_for(self._one(n, way), 120)

    async def _one(self, n: int, way: str) -> None:
        name = f"session-{n}"
        texts = [f"Number {n} says word {k} of {way}. " for k in range(2)]
        async with connect(self.address, proxy=None, max_queue=4) as sock:
            client = Client(sock)
            await client.send("config", session_id=name, seed=n % 1000)
            for k, text in enumerate(texts, 1):
                await client.send("segment_start", segment_id=k)
                await client.send("text", text=text)
                await client.send("flush", segment_id=k)
            try:
                await getattr(self, "_" + way)(client)
            except websockets.ConnectionClosed:
                assert way == "nonsense", f"{name} ({way}) was closed: {client.types[-3:]}"
        self._check_frames(client, name, texts, whole=way in ("patient", "pauses", "toggles"))

    def _check_frames(self, client: Client, name: str, texts: list[str], *, whole: bool) -> None:
        for event in client.events:
            ready_or_later = event["type"] != "error"
            assert event["session_id"] == name or not ready_or_later, (name, event)
            if "fragment" in event:
                assert event["text"] in (*texts, "And on it goes. "), (name, event)
        if not whole:
            return
        assert client.types[-1] == "done", (name, client.types[-5:])
        samples = np.frombuffer(client.pcm, "<i2").astype(float)
        assert len(client.of("fragment_done")) == 2, (name, client.types)
        for event, text in zip(client.of("fragment_done"), texts, strict=True):
            part = samples[event["start_ms"] * 24 : event["end_ms"] * 24]
            assert abs(len(part) / 24000 - duration_of(text.strip())) < 0.05, (name, event)
            assert abs(_frequency(part) - frequency_of(text.strip())) < 15, (name, event)
        self.heard_whole += 1

    # The ways of clients ----------------------------------------------------------------------

    async def _patient(self, c: Client) -> None:
        await c.send("end")
        await c.rest()

    async def _pauses(self, c: Client) -> None:
        await c.until_pcm(self.random.randint(0, 4))
        await c.send("pause")
        await c.until("paused")
        await asyncio.sleep(self.random.random() * 0.3)
        await c.send("resume")
        await self._patient(c)

    async def _toggles(self, c: Client) -> None:
        for _ in range(self.random.randint(1, 10)):
            await c.send("pause")
            await c.send("resume")
        await self._patient(c)

    async def _cancels(self, c: Client) -> None:
        await c.until_pcm(self.random.randint(0, 3))
        await c.send("cancel")
        await c.rest()
        assert c.types[-1] == "cancelled"

    async def _keeps(self, c: Client) -> None:
        await c.until_pcm(self.random.randint(0, 3))
        await c.send("cancel", keep_session=True)
        await c.until("cancelled")
        await c.send("text", text="And on it goes. ")
        await self._patient(c)
        assert c.types[-1] == "done"

    async def _skips(self, c: Client) -> None:
        await c.until_pcm(self.random.randint(0, 3))
        await c.send("skip_segment", segment_id=1)
        await self._patient(c)
        assert c.of("segment_done")[-1]["segment_id"] == 2

    async def _vanishes(self, c: Client) -> None:
        await c.until_pcm(self.random.randint(0, 3))
        if self.random.random() < 0.3:
            await c.send("pause")
        c.socket.transport.abort()

    async def _leaves(self, c: Client) -> None:
        await c.until_pcm(self.random.randint(0, 3))
        await c.socket.close()

    async def _stops_reading(self, c: Client) -> None:
        await c.until_pcm(1)
        c.socket.transport.pause_reading()
        await asyncio.sleep(0.5)
        c.socket.transport.resume_reading()
        await self._patient(c)

    async def _nonsense(self, c: Client) -> None:
        await c.socket.send(self.random.choice(["{", '{"type":"shout"}', b"\0", "[]"]))
        await c.rest()
        assert c.types[-1] == "error"
        assert c.socket.close_code == 1008

    async def _silent(self, c: Client) -> None:
        await c.send("text", text="👍 ... ")
        await self._patient(c)


def _engine_threads() -> int:
    """The loop's own pool may keep its threads."""
    return sum(thread.name == "phonate-engine" for thread in threading.enumerate())


def _frequency(samples: np.ndarray) -> float:
    """Hz of a pure tone, by its zero crossings."""
    middle = samples[len(samples) // 5 : -len(samples) // 5]
    crossings = np.count_nonzero(np.diff(np.signbit(middle)))
    return crossings / 2 / (len(middle) / 24000)


async def main() -> None:
    sessions = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    at_a_time = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else time.time_ns() % 10**6
    soak = Soak(sessions, at_a_time, seed)
    began = time.monotonic()
    counts = await soak.run()
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(dict(counts)))
    print(
        f"{sessions} sessions, {at_a_time} at a time, seed {seed}: "
        f"{soak.heard_whole} heard whole, {time.monotonic() - began:.0f} s, at most {mib:.0f} MiB"
    )


if __name__ == "__main__":
    asyncio.run(main())
