"""An engine that fails in every way it can, under thirty clients at once.

    python tests/soak/chaos.py [seconds] [seed]      (60, random)

Each client asks again and again, by chance whole, streamed, as server-sent events, over a
WebSocket, in a batch, or it leaves in the middle; the engine hangs, raises, makes NaN, nothing, or
ten times too much, and dies half way (`faults`). Every answer must be one that is documented for
that fault, /health must always answer, and afterwards nothing may be left and the server must
speak.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import websockets
from faults import FAULTS, TIMEOUT_S, Answers, text_for
from soaked_server import Soaked, soaked
from websockets.asyncio.client import connect

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "api"))

from stream_client import PATH, Client

CLIENTS = 30
LONGEST_S = 20.0
"""No answer may take longer, on a busy machine either."""
OPTIONS = {"max_batch": 12, "max_queued_requests": 16, "synthesis_timeout": TIMEOUT_S,
           "stall_timeout": 1.0, "max_output_bytes": 8 * 2**20}  # fmt: skip

BUSY = (503, "server_busy")
TIMED_OUT = (504, "timeout")
WAYS = ("whole", "stream", "sse", "socket", "batch", "leaves")
TIMES = ("once", "twice", "thrice", "forever")
EVENTS = {"ready", "fragment_ready", "first_pcm_ready", "fragment_done", "warning", "done", "error"}


class Chaos:
    """`run` returns how often which fault met which way; AssertionError for what is wrong."""

    def __init__(self, seconds: float, seed: int) -> None:
        self.seconds = seconds
        self.seed = seed
        self.met: Counter[tuple[str, str]] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.longest_s = 0.0
        self.health_ms: list[float] = []
        self.health_statuses: Counter[int] = Counter()

    async def run(self) -> Soaked:
        async with soaked(**OPTIONS) as server:
            self._address = server.address
            await self._speaks(server)
            before = await server.calm(await server.census())
            over = threading.Event()
            probing = asyncio.ensure_future(asyncio.to_thread(self._probe, over))
            try:
                self._until = time.monotonic() + self.seconds
                await asyncio.gather(*(self._client(n) for n in range(CLIENTS)))
            finally:
                over.set()
                await probing
            await server.calm(before)
            await self._speaks(server)
            return server

    # The clients ------------------------------------------------------------------------------

    async def _client(self, n: int) -> None:
        rng = random.Random(f"{self.seed}-{n}")
        index = 0
        async with httpx.AsyncClient(base_url=self._address, timeout=LONGEST_S) as http:
            while time.monotonic() < self._until:
                fault, way = rng.choice([*FAULTS, *["fine"] * 4]), rng.choice(WAYS)
                text = text_for(fault, f"Client {n} says sentence {index}.")
                began = time.monotonic()
                try:
                    outcome = await getattr(self, "_" + way)(http, rng, fault, text)
                except Exception as error:
                    raise AssertionError(f"{fault}, {way}: {error!r}") from error
                took = time.monotonic() - began
                assert took < LONGEST_S, f"{fault}, {way} took {took:.1f} s"
                self.longest_s = max(self.longest_s, took)
                self.met[fault, way] += 1
                self.outcomes[outcome] += 1
                index += 1
                if outcome == "503":
                    await asyncio.sleep(0.2 + rng.random() * 0.3)

    async def _whole(self, http: Any, rng: random.Random, fault: str, text: str) -> str:
        format_ = rng.choice(["pcm", "wav", "mp3", "opus", "aac", "flac"])
        body = {"input": text, "response_format": format_, "stream": False}
        answer = await http.post("/v1/audio/speech", json=body)
        if answer.status_code != 200:
            return _check_refusal(answer, FAULTS[fault])
        assert answer.headers["x-finish-reason"] in FAULTS[fault].finish, dict(answer.headers)
        assert len(answer.content) > 500
        return "200"

    async def _stream(self, http: Any, rng: random.Random, fault: str, text: str) -> str:
        body = {"input": text, "response_format": rng.choice(["pcm", "mp3"])}
        began, heard = time.monotonic(), 0
        try:
            async with http.stream("POST", "/v1/audio/speech", json=body) as answer:
                if answer.status_code != 200:
                    await answer.aread()
                    return _check_refusal(answer, FAULTS[fault])
                async for piece in answer.aiter_raw():
                    heard += len(piece)
        except httpx.RemoteProtocolError:
            # A transfer is cut for the fault, or since the time was up when it had just begun.
            assert heard, "cut before the first byte"
            assert FAULTS[fault].cut or time.monotonic() - began > TIMEOUT_S
            return "cut"
        assert FAULTS[fault].finish, f"{heard} bytes came to a clean end"
        return "200"

    async def _sse(self, http: Any, rng: random.Random, fault: str, text: str) -> str:
        body = {"input": text, "stream_format": "sse"}
        told, broken = "", False
        try:
            async with http.stream("POST", "/v1/audio/speech", json=body) as answer:
                if answer.status_code != 200:
                    await answer.aread()
                    return _check_refusal(answer, FAULTS[fault])
                async for piece in answer.aiter_text():
                    told += piece
        except httpx.RemoteProtocolError:
            broken = True
        events = [json.loads(line[6:]) for line in told.splitlines() if line[:6] == "data: "]
        *deltas, last = events
        assert deltas
        assert {event["type"] for event in deltas} == {"speech.audio.delta"}
        if not broken:
            assert last["type"] == "speech.audio.done", last
            assert last["finish_reason"] in FAULTS[fault].finish, last
            return "200"
        # A failure is told, and then the connection breaks: some clients know nothing of events.
        assert last["type"] == "speech.audio.error", last
        codes = {code for _, code in FAULTS[fault].whole} if FAULTS[fault].cut else set()
        assert _error_of(last)["code"] in codes | {"timeout"}, last
        return "error event"

    async def _batch(self, http: Any, rng: random.Random, fault: str, text: str) -> str:
        other = "A neighbour in the batch."
        body = {"items": [{"input": text}, {"input": other}], "response_format": "pcm"}
        answer = await http.post("/v1/audio/speech/batch", json=body)
        assert answer.status_code == 200, answer.text
        for result, answers in zip(
            answer.json()["results"], (FAULTS[fault], FAULTS["fine"]), strict=True
        ):
            if result["status"] == "success":
                assert result["finish_reason"] in answers.finish, result
                continue
            codes = {code for _, code in answers.whole} | {"timeout", "server_busy"}
            assert _error_of(result)["code"] in codes, result
        return "batch"

    async def _leaves(self, http: Any, rng: random.Random, fault: str, text: str) -> str:
        body = {"input": text, "response_format": "pcm"}
        with contextlib.suppress(asyncio.TimeoutError, httpx.RemoteProtocolError):
            await asyncio.wait_for(self._begins(http, body), rng.random() * 0.3)
        return "left"

    async def _begins(self, http: Any, body: dict[str, Any]) -> None:
        async with http.stream("POST", "/v1/audio/speech", json=body) as answer:
            async for _ in answer.aiter_raw():
                return

    async def _socket(self, http: Any, rng: random.Random, fault: str, text: str) -> str:
        sentences = rng.randint(1, len(TIMES))
        address = self._address.replace("http:", "ws:") + PATH
        async with connect(address, proxy=None) as socket:
            client = Client(socket)
            await client.send("config")
            for k in range(sentences):
                await client.send("text", text=f"{text[:-1]} {TIMES[k]}. ")
            await client.send("end")
            try:
                await asyncio.wait_for(client.rest(), LONGEST_S * sentences)
            except websockets.ConnectionClosedError as error:
                raise AssertionError(f"no close frame: {error}") from error
        return _check_socket(client, FAULTS[fault], sentences)

    # Around them ------------------------------------------------------------------------------

    def _probe(self, over: threading.Event) -> None:
        """Is /health there, and how fast?"""
        with httpx.Client(base_url=self._address, timeout=5) as http:
            while not over.wait(0.05):
                began = time.perf_counter()
                answer = http.get("/health")
                self.health_ms.append((time.perf_counter() - began) * 1000)
                self.health_statuses[answer.status_code] += 1
                status = answer.json()["status"]
                assert (answer.status_code, status) in ((200, "ok"), (503, "degraded"))

    async def _speaks(self, server: Soaked) -> None:
        async with httpx.AsyncClient(base_url=server.address, timeout=30) as http:
            for n in range(20):
                body = {"input": f"Sentence {n} is said.", "response_format": "pcm"}
                answer = await http.post("/v1/audio/speech", json=body)
                assert answer.status_code == 200, answer.text
                assert len(answer.content) > 24000
            health = (await http.get("/health")).json()
            assert health["status"] == "ok", health

    def summary(self) -> str:
        health = sorted(self.health_ms)
        middle, late = health[len(health) // 2], health[int(len(health) * 0.99)]
        return (
            f"{sum(self.met.values())} requests of {CLIENTS} clients in {self.seconds:g} s, "
            f"seed {self.seed}: {json.dumps(dict(self.outcomes))}; the longest answer took "
            f"{self.longest_s:.1f} s; /health answered {len(health)} times "
            f"({json.dumps(dict(self.health_statuses))}), median {middle:.1f} ms, "
            f"99% {late:.1f} ms, worst {health[-1]:.1f} ms"
        )


def _error_of(body: dict[str, Any]) -> dict[str, Any]:
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}, error
    assert len(error["message"]) > 10
    return error


def _check_refusal(answer: Any, answers: Answers) -> str:
    seen = (answer.status_code, _error_of(answer.json())["code"])
    assert seen in answers.whole | {BUSY, TIMED_OUT}, (seen, answer.text)
    assert answer.headers["x-request-id"]
    if answer.status_code == 503:
        assert int(answer.headers["retry-after"]) >= 1
    return str(answer.status_code)


def _check_socket(client: Client, answers: Answers, sentences: int) -> str:
    events = client.events
    assert {event["type"] for event in events} <= EVENTS, client.types
    codes = answers.event | {"timeout", "server_busy"}
    for event in client.of("warning"):
        assert event["code"] in codes, event
    for event in client.of("fragment_done"):
        reasons = answers.finish | {"error"} | ({"silent"} if "silent" in answers.event else set())
        assert event["finish_reason"] in reasons, event
    last, close = events[-1], client.socket.close_code
    if last["type"] == "done":
        assert close == 1000
        assert len(client.of("fragment_done")) == sentences, client.types
        return "session"
    assert last["type"] == "error", client.types
    assert close in (1011, 1013), (close, last)
    assert _error_of(last)["code"] in codes, last
    return "session error"


async def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % 10**6
    chaos = Chaos(seconds, seed)
    print(f"seed {seed}", flush=True)
    await chaos.run()
    missing = set(FAULTS) - {fault for fault, _ in chaos.met}
    assert not missing, f"never tried: {missing}"
    assert len(chaos.met) > len(FAULTS) * len(WAYS) / 2
    print(chaos.summary())


if __name__ == "__main__":
    asyncio.run(main())
