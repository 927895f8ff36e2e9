"""Kills the engine's process under load, many times; the server stays, every client is answered.

    python tests/soak/crash.py [deaths] [seed] [library]      (20, random, qwentts_cpp_cpu)

A tiny random talker runs on the qwentts.cpp wheel with --isolate-engine, and clients speak without
a break. At random moments the process is aborted, made to crash, killed and stopped from outside,
and made to abort by itself, with a value that the binding would have refused. Each client must get
audio, a 502 `engine_died`, a 503 with Retry-After, or a broken transfer after the first sound; the
server must answer /health all the time. Tells how long each recovery took: from the death to the
next answer with sound.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import httpx

from phonate.engine.base import Engine, SynthesisRequest
from phonate.engine.choose import build_engine
from phonate.engine.models.resolve import ResolvedModel
from phonate.settings import Settings

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

CLIENTS = 3
RECOVERY_LIMIT_S = 60.0


POISON = "What the library cannot take."


class Way(Enum):
    ABRT = signal.SIGABRT
    SEGV = signal.SIGSEGV
    KILL = signal.SIGKILL
    STOP = signal.SIGSTOP
    ITSELF = 0
    """Aborts on a request; only with `unchecked`, and a library that does."""


def unchecked(settings: Settings, model: ResolvedModel | None) -> Engine:
    """What the engine's process makes here: it sends a poisonous value past the binding."""
    engine: Any = build_engine(settings, model)
    checker = engine._checker

    class Blind:
        def plan(self, request: SynthesisRequest) -> Any:
            plan = checker.plan(request)
            if request.text == POISON:
                plan.sampling["repetition_penalty"] = 0.0
            return plan

        def __getattr__(self, name: str) -> Any:
            return getattr(checker, name)

    engine._checker = Blind()
    return engine  # type: ignore[no-any-return]


class Crash:
    """`run` raises AssertionError for the first answer that is not documented."""

    def __init__(self, address: str, pid: Callable[[], int], seed: int) -> None:
        self._address = address
        self._pid = pid
        self._random = random.Random(seed)
        self._over = False
        self._last_sound = 0.0
        self.outcomes: Counter[str] = Counter()
        self.recoveries: list[tuple[Way, float]] = []
        self.slowest_health_s = 0.0

    async def run(self, ways: Sequence[Way], gap_s: tuple[float, float]) -> None:
        """One death after the other, each `gap_s` after the recovery from the last."""
        limits = httpx.Limits(max_connections=CLIENTS + 2)
        async with httpx.AsyncClient(timeout=120, limits=limits) as client:
            busy = [asyncio.ensure_future(self._speak(client, n)) for n in range(CLIENTS)]
            busy.append(asyncio.ensure_future(self._watch(client)))
            dying = asyncio.ensure_future(self._die(client, ways, gap_s))
            await asyncio.wait([*busy, dying], return_when=asyncio.FIRST_COMPLETED)
            self._over = True
            if not dying.done():
                dying.cancel()
            await asyncio.gather(*busy)  # first: what is wrong with an answer
            await dying

    async def _die(
        self, client: httpx.AsyncClient, ways: Sequence[Way], gap_s: tuple[float, float]
    ) -> None:
        for way in ways:
            await self._sound_after(time.monotonic())
            await asyncio.sleep(self._random.uniform(*gap_s))
            died, pid = time.monotonic(), self._pid()
            if way is Way.ITSELF:
                assert await self._one(client, POISON) == "502"
                died = time.monotonic()
            else:
                os.kill(pid, way.value)
            await self._recovered(way, died, pid)

    async def _recovered(self, way: Way, died: float, pid: int) -> None:
        # What was on its way when it died still sounds: wait for another process first.
        while self._pid() == pid:
            await asyncio.sleep(0.005)
            assert time.monotonic() - died < RECOVERY_LIMIT_S, f"no new process after {way.name}"
        sound = await self._sound_after(time.monotonic())
        self.recoveries.append((way, sound - died))

    async def _sound_after(self, moment: float) -> float:
        while self._last_sound < moment:
            await asyncio.sleep(0.005)
            assert time.monotonic() - moment < RECOVERY_LIMIT_S, "nobody is heard any more"
        return self._last_sound

    async def _speak(self, client: httpx.AsyncClient, n: int) -> None:
        while not self._over:
            outcome = await self._one(client, f"Client {n} speaks.", stream=n % 2 == 0)
            self.outcomes[outcome] += 1
            if outcome == "503":
                await asyncio.sleep(0.5)

    async def _one(self, client: httpx.AsyncClient, text: str, *, stream: bool = False) -> str:
        body = {"input": text, "response_format": "pcm", "seed": 1, "max_new_tokens": 6,
                "stream": stream}  # fmt: skip
        address = f"{self._address}/v1/audio/speech"
        begun = False
        try:
            async with client.stream("POST", address, json=body) as answer:
                if answer.status_code != 200:
                    await answer.aread()
                    return self._checked(answer)
                async for piece in answer.aiter_raw():
                    begun = begun or bool(piece)
                    self._last_sound = time.monotonic()
        except httpx.RemoteProtocolError:
            return "cut"  # the only sign that is left once the status was sent
        assert begun, "a 200 without a sound"
        return "audio"

    def _checked(self, answer: httpx.Response) -> str:
        error = answer.json()["error"]
        told = (answer.status_code, error["type"], error["code"])
        if told == (502, "server_error", "engine_died"):
            return "502"
        assert told == (503, "server_busy", "server_busy"), answer.text
        assert int(answer.headers["retry-after"]) >= 1
        return "503"

    async def _watch(self, client: httpx.AsyncClient) -> None:
        while not self._over:
            began = time.monotonic()
            answer = await client.get(f"{self._address}/health")
            self.slowest_health_s = max(self.slowest_health_s, time.monotonic() - began)
            assert answer.status_code in (200, 503)
            await asyncio.sleep(0.05)


def report(crash: Crash) -> None:
    for way in Way:
        times = [seconds for kind, seconds in crash.recoveries if kind is way]
        if times:
            print(
                f"{way.name}: {len(times)} deaths, recovered after "
                f"{statistics.median(times):.2f} s (median), {max(times):.2f} s (max)"
            )
    answers = ", ".join(f"{n} {what}" for what, n in crash.outcomes.most_common())
    print(f"answers: {answers}; slowest /health {crash.slowest_health_s * 1000:.0f} ms")


def main() -> None:
    from support import running

    from phonate.engine.isolated.engine import IsolatedEngine
    from phonate.engine.models.factory import Recipe, make_model
    from phonate.engine.models.resolve import resolve
    from phonate.settings import load

    deaths = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % 10**6
    library = sys.argv[3] if len(sys.argv) > 3 else "qwentts_cpp_cpu"
    order = [Way.ITSELF, Way.ABRT, Way.SEGV, Way.KILL, Way.STOP]
    path = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    with tempfile.TemporaryDirectory() as folder:
        files = make_model(Recipe(kind="base", codec="full"), Path(folder))
        options = {"isolate_engine": True, "talker": str(files.talker), "codec": str(files.codec),
                   "library": library, "cpu_threads": 1, "max_batch": 2}  # fmt: skip
        model = resolve(None, talker=files.talker, codec=files.codec)
        engine = IsolatedEngine(load(options, {}).settings, model, factory="crash:unchecked")
        with running(engine, **options) as server:
            crash = Crash(server.address, lambda: engine._supervisor._process.pid, seed)
            ways = [order[n % len(order)] for n in range(deaths)]
            began = time.monotonic()
            # After five healthy seconds the back-off begins anew: a recovery is not its sum.
            asyncio.run(crash.run(ways, gap_s=(5.0, 6.0)))
            restarts = engine.vitals.restarts
            assert server.service.health().ok
    print(
        f"{deaths} deaths in {time.monotonic() - began:.0f} s, seed {seed}, {library}: {restarts}"
    )
    report(crash)


if __name__ == "__main__":
    main()
