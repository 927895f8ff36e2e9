"""Thousands of requests of every kind, and what the server holds after each tenth of them.

    python tests/soak/endure.py [requests] [at a time] [seed]      (10000, 16, random)

The first two tenths warm up. After that memory must be flat, and tasks, descriptors, threads and
Python objects must be back where they were each time the clients rest.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import soundfile
from faults import text_for
from soaked_server import INFO, soaked
from websockets.asyncio.client import connect

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "api"))

from stream_client import PATH, Client

PHASES = 10
WARM_UP = 2
KIB_PER_THOUSAND = 400
"""RSS may still creep by this much per 1,000 requests: a leak of 0.4 KiB a request is told from
what the allocator does."""
OBJECTS_PER_THOUSAND = 50
LONG = 5000
"""So many requests tell a slope from noise; fewer only show that nothing big is kept."""
OPTIONS = {"max_batch": 4, "max_queued_requests": 1000, "max_sessions": 1000}

FORMATS = ("pcm", "wav", "mp3", "opus", "aac", "flac")
GETS = ("/health", "/ready", "/v1/models", "/v1/audio/voices", "/v1/capabilities", "/metrics",
        "/v1/audio/models", "/v1/test", "/v1/audio/voice_consents", "/openapi.json")  # fmt: skip
KINDS = {
    "whole": 22, "stream": 20, "sse": 8, "wrong": 10, "failing": 6, "get": 8, "languages": 2,
    "batch": 3, "one_off": 3, "voice": 3, "leaves": 6, "session": 4, "cancels": 2, "vanishes": 2,
}  # fmt: skip


def _recording() -> bytes:
    buffer = io.BytesIO()
    tone = 0.3 * np.sin(np.arange(36_000) * 0.05)
    soundfile.write(buffer, tone, 24_000, format="WAV")
    return buffer.getvalue()


RECORDING = _recording()
WRONG: tuple[tuple[dict[str, Any], int], ...] = (
    ({"input": ""}, 400),
    ({"input": "x", "voice": "nobody"}, 400),
    ({"input": "x", "model": "gpt-99"}, 404),
    ({"input": "x", "response_format": "midi"}, 400),
    ({"input": "x", "speed": 9}, 400),
    ({"input": "x" * 5000}, 400),
    ({"input": "x", "language": "klingon"}, 400),
    ({}, 400),
)


class Endurance:
    """`run` returns a line for each phase; raises AssertionError for what is wrong."""

    def __init__(self, requests: int, at_a_time: int, seed: int) -> None:
        self.requests = requests
        self.at_a_time = at_a_time
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.rows: list[dict[str, Any]] = []

    async def run(self) -> None:
        began = time.monotonic()
        async with soaked(**OPTIONS) as server:
            self._address = server.address
            self._row(0, await server.census(), began)
            for phase in range(1, PHASES + 1):
                await self._phase(phase)
                base = self.rows[-1] if phase > WARM_UP else {"tasks": 9, "fds": 40}
                self._row(phase, await server.calm({**self._bounds(), **base}), began)
        self._judge()

    def _bounds(self) -> dict[str, Any]:
        return {"thread_names": self.rows[0]["thread_names"]}

    def _row(self, phase: int, census: dict[str, Any], began: float) -> None:
        done = self.requests * phase // PHASES
        row = {**census, "requests": done, "seconds": time.monotonic() - began}
        self.rows.append(row)
        print(
            f"{done:6} requests, {row['seconds']:6.1f} s: RSS {row['rss_kib'] / 1024:6.1f} MiB, "
            f"{row['fds']} descriptors, {row['tasks']} tasks, {row['threads']} threads, "
            f"{row['objects']} objects",
            flush=True,
        )

    def _judge(self) -> None:
        later = self.rows[WARM_UP:]
        thousands = [row["requests"] / 1000 for row in later]
        for name, allowed, noise in (
            ("rss_kib", KIB_PER_THOUSAND, 64 * 1024),
            ("objects", OBJECTS_PER_THOUSAND, 3000),
        ):
            values = [row[name] for row in later]
            slope = float(np.polyfit(thousands, values, 1)[0])
            print(f"{name}: {slope:+.0f} per 1,000 requests, {values[0]} .. {values[-1]}")
            if self.requests >= LONG:
                assert slope <= allowed, f"{name} grows: {values}"
            assert values[-1] - values[0] <= noise, f"{name} grows: {values}"

    async def _phase(self, phase: int) -> None:
        jobs = asyncio.Queue[tuple[int, str, random.Random]]()
        for n in range(self.requests * (phase - 1) // PHASES, self.requests * phase // PHASES):
            kind = self.random.choices(list(KINDS), list(KINDS.values()))[0]
            jobs.put_nowait((n, kind, random.Random(self.random.random())))
        await asyncio.gather(*(self._worker(jobs) for _ in range(self.at_a_time)))

    async def _worker(self, jobs: asyncio.Queue[tuple[int, str, random.Random]]) -> None:
        async with httpx.AsyncClient(base_url=self._address, timeout=60) as http:
            while not jobs.empty():
                n, kind, rng = jobs.get_nowait()
                self.counts[kind] += 1
                try:
                    await getattr(self, "_" + kind)(http, rng, f"Number {n} here.")
                except Exception as error:
                    raise AssertionError(f"request {n}, {kind}: {error!r}") from error

    # The kinds of requests --------------------------------------------------------------------

    def _body(self, rng: random.Random, text: str) -> dict[str, Any]:
        body: dict[str, Any] = {"input": text, "response_format": rng.choice(FORMATS)}
        if rng.random() < 0.3:
            body["voice"] = rng.choice(["tone", "ton", "alloy", "TONE"])
        if rng.random() < 0.3:
            body["model"] = rng.choice(["tts-1", "tts-1-hd", "scripted", "gpt-4o-mini-tts"])
        if rng.random() < 0.1:
            body["speed"] = rng.choice([0.5, 1.5, 3])
        if rng.random() < 0.1:
            body["sample_rate"] = rng.choice([8000, 16000, 48000])
        return body

    async def _whole(self, http: Any, rng: random.Random, text: str) -> None:
        body = {**self._body(rng, text), "stream": False}
        answer = await http.post("/v1/audio/speech", json=body)
        assert answer.status_code == 200, answer.text
        assert len(answer.content) == int(answer.headers["content-length"]) > 500

    async def _stream(self, http: Any, rng: random.Random, text: str) -> None:
        answer = await http.post("/v1/audio/speech", json=self._body(rng, text))
        assert answer.status_code == 200, answer.text
        assert len(answer.content) > 500

    async def _sse(self, http: Any, rng: random.Random, text: str) -> None:
        answer = await http.post(
            "/v1/audio/speech", json={**self._body(rng, text), "stream_format": "sse"}
        )
        assert answer.status_code == 200, answer.text
        assert '"speech.audio.done"' in answer.text

    async def _wrong(self, http: Any, rng: random.Random, text: str) -> None:
        body, status = rng.choice(WRONG)
        answer = await http.post("/v1/audio/speech", json=body)
        assert answer.status_code == status, answer.text
        path, method, status = rng.choice(
            [("/nothing", "GET", 404), ("/v1/audio/speech", "PUT", 405),
             ("/v1/audio/voices/nobody", "DELETE", 404), ("/v1/models/none", "GET", 404)]
        )  # fmt: skip
        answer = await http.request(method, path)
        assert answer.status_code == status, answer.text

    async def _failing(self, http: Any, rng: random.Random, text: str) -> None:
        fault, status = rng.choice(
            [("raise", 502), ("bug", 500), ("nan", 502), ("nothing", 502), ("quits", 502)]
        )
        body = {"input": text_for(fault, text), "response_format": "mp3"}
        answer = await http.post("/v1/audio/speech", json=body)
        assert answer.status_code == status, answer.text

    async def _get(self, http: Any, rng: random.Random, text: str) -> None:
        answer = await http.get(rng.choice(GETS))
        assert answer.status_code == 200, answer.text

    async def _languages(self, http: Any, rng: random.Random, text: str) -> None:
        answer = await http.post("/v1/text/languages", json={"texts": [text, "Guten Morgen!"]})
        assert answer.status_code == 200, answer.text

    async def _batch(self, http: Any, rng: random.Random, text: str) -> None:
        items = [{"input": text}, {"input": ""}, {"input": "And another one."}]
        body = {"items": items, "response_format": rng.choice(FORMATS)}
        answer = await http.post("/v1/audio/speech/batch", json=body)
        assert answer.status_code == 200, answer.text
        assert (answer.json()["succeeded"], answer.json()["failed"]) == (2, 1)

    async def _one_off(self, http: Any, rng: random.Random, text: str) -> None:
        body = self._body(rng, text)
        body.pop("voice", None)
        if rng.random() < 0.5:
            body["speaker_embedding"] = [rng.random() for _ in range(INFO.embedding_dim)]
        else:
            body["ref_audio"] = base64.b64encode(RECORDING).decode()
        answer = await http.post("/v1/audio/speech", json=body)
        assert answer.status_code == 200, answer.text

    async def _voice(self, http: Any, rng: random.Random, text: str) -> None:
        name = f"voice {rng.random()}"
        made = await http.post(
            "/v1/audio/voices",
            data={"name": name, "ref_text": "What is said."},
            files={"audio_sample": ("a.wav", RECORDING, "audio/wav")},
        )
        assert made.status_code == 200, made.text
        answer = await http.post("/v1/audio/speech", json={"input": text, "voice": name})
        assert answer.status_code == 200, answer.text
        gone = await http.delete(f"/v1/audio/voices/{made.json()['id']}")
        assert gone.status_code == 200, gone.text

    async def _leaves(self, http: Any, rng: random.Random, text: str) -> None:
        body = {"input": text_for("endless", text), "max_new_tokens": 5000, "speed": 0.9}
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._begins(http, body), 0.002 + rng.random() * 0.2)

    async def _begins(self, http: Any, body: dict[str, Any]) -> None:
        async with http.stream("POST", "/v1/audio/speech", json=body) as answer:
            async for _ in answer.aiter_raw():
                return

    @contextlib.asynccontextmanager
    async def _connected(self) -> Any:
        async with connect(self._address.replace("http:", "ws:") + PATH, proxy=None) as socket:
            client = Client(socket)
            await client.send("config")
            yield client

    async def _session(self, http: Any, rng: random.Random, text: str) -> None:
        async with self._connected() as client:
            for word in text.split():
                await client.send("text", text=word + " ")
            await client.send("end")
            await client.rest()
            assert client.types[-1] == "done", client.types
            assert client.pcm

    async def _cancels(self, http: Any, rng: random.Random, text: str) -> None:
        async with self._connected() as client:
            await client.send("text", text=text_for("endless", text))
            await client.send("flush")
            await client.until_pcm()
            await client.send("cancel")
            await client.rest()
            assert client.types[-1] == "cancelled", client.types

    async def _vanishes(self, http: Any, rng: random.Random, text: str) -> None:
        async with self._connected() as client:
            await client.send("text", text=text_for("endless", text))
            await client.send("flush")
            await client.until_pcm(rng.randint(0, 2))
            client.socket.transport.abort()


async def main() -> None:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    at_a_time = int(sys.argv[2]) if len(sys.argv) > 2 else 16
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else time.time_ns() % 10**6
    print(f"seed {seed}", flush=True)
    endurance = Endurance(requests, at_a_time, seed)
    await endurance.run()
    print(dict(endurance.counts))


if __name__ == "__main__":
    asyncio.run(main())
