"""The server under test in a process of its own, so that what it uses is only its own.

    async with soaked(max_batch=4) as server:
        before = await server.census()

Run as a program it serves the scripted engine of `faults` and tells its address. `GET /census` is
its only addition: tasks, threads, descriptors, memory, and what the service holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import json
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from faults import script

from phonate import settings
from phonate.app import create_app
from phonate.engine.scripted import DEFAULT_INFO, ScriptedEngine
from phonate.listen import bind
from phonate.serve import uvicorn_config

POOLS = {
    "phonate-engine-spare": 8,
    "asyncio_": 32,
    "phonate-encode_": 4,
    "phonate-voices_": 32,
    "AnyIO worker thread": 0,
}
"""The threads that stay, and how many at most. AnyIO has some only where FastAPI is given a plain
function to call, which costs every request two changes of threads."""

INFO = dataclasses.replace(
    DEFAULT_INFO,
    can_clone=True,
    can_icl=True,
    can_instruct=True,
    embedding_dim=64,
    takes_sampling=True,
    max_batch=12,
)


def census(app: Any, engine: ScriptedEngine) -> dict[str, Any]:
    state = app.state.phonate
    gc.collect()
    tasks = sorted(_name(task) for task in asyncio.all_tasks())
    threads = sorted(_kind(thread.name) for thread in threading.enumerate())
    return {
        "tasks": len(tasks),
        "task_names": tasks,
        "threads": len(threads),
        "thread_names": threads,
        "fds": len(os.listdir("/proc/self/fd")),
        "rss_kib": _rss_kib(),
        "active": state.service.admission.active,
        "queued": state.service.admission.queued,
        "sessions": len(state.sessions),
        "engine_calls": engine.in_flight,
        "utterances": len(state.service._utterances),
        "syntheses": len(state.service._running),
        "objects": len(gc.get_objects()),
    }


def _name(task: asyncio.Task[Any]) -> str:
    return getattr(task.get_coro(), "__qualname__", repr(task))


def _kind(name: str) -> str:
    """Workers of a pool are numbered."""
    return name.rstrip("0123456789")


def _rss_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def main() -> None:
    options = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as voices:
        effective = settings.load({"voice_dir": voices, **options}, {}).settings
        engine = ScriptedEngine(script, INFO, remember=False)
        app = create_app(effective, engine)

        @app.get("/census")
        async def _census() -> dict[str, Any]:
            return census(app, engine)

        sock = bind("127.0.0.1", 0)
        print(f"http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
        asyncio.run(uvicorn.Server(uvicorn_config(app, effective)).serve(sockets=[sock]))


class Soaked:
    """The running server, as its clients see it."""

    def __init__(self, address: str, log: Path) -> None:
        self.address = address
        self._log = log

    async def census(self) -> dict[str, Any]:
        async with httpx.AsyncClient(base_url=self.address, timeout=30) as client:
            answer: dict[str, Any] = (await client.get("/census")).json()
        return answer

    async def calm(self, before: dict[str, Any], patience_s: float = 20.0) -> dict[str, Any]:
        """The census once nothing is held and no more is used than `before`. Raises AssertionError
        that tells what is left."""
        until = asyncio.get_running_loop().time() + patience_s
        while left := self._left(before, now := await self.census()):
            if asyncio.get_running_loop().time() > until:
                raise AssertionError(f"left behind: {left}; the server's log: {self.log()}")
            await asyncio.sleep(0.2)
        return now

    def _left(self, before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
        held = ("active", "queued", "sessions", "engine_calls", "utterances", "syntheses")
        left = {name: now[name] for name in held if now[name]}
        for name in ("tasks", "fds"):
            if now[name] > before[name]:
                left[name] = (before[name], now[name], now.get(name[:-1] + "_names"))
        for kind, count in Counter(now["thread_names"]).items():
            if count > POOLS.get(kind, before["thread_names"].count(kind)):
                left[kind] = count
        return left

    def log(self) -> str:
        return self._log.read_text()[-4000:]


@contextlib.asynccontextmanager
async def soaked(**options: Any) -> AsyncIterator[Soaked]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable, __file__, json.dumps(options),
                stdout=asyncio.subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        assert process.stdout is not None
        try:
            address = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
            assert address, log.read_text()
            server = Soaked(address, log)
            await _until_ready(server)
            yield server
        finally:
            if process.returncode is None:
                process.terminate()
            ended = await asyncio.wait_for(process.wait(), 60)
            assert ended in (0, -15), f"the server ended with {ended}: {log.read_text()[-4000:]}"


async def _until_ready(server: Soaked) -> None:
    async with httpx.AsyncClient(base_url=server.address) as client:
        for _ in range(600):
            with contextlib.suppress(httpx.TransportError):
                if (await client.get("/ready")).status_code == 200:
                    return
            await asyncio.sleep(0.05)
    raise AssertionError(f"the server did not get ready: {server.log()}")


if __name__ == "__main__":
    main()
