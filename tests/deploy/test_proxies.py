"""nginx, HAProxy and Caddy with the files of deploy/, in front of two real servers."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import httpx
import pytest
import websockets
from fleet import CLIENT, PROXIES, Fleet, Front

PCM_PER_S = 24_000 * 2


def speak(client: httpx.Client, text: str, **headers: str) -> httpx.Response:
    body = {"input": text, "response_format": "pcm"}
    return client.post("/v1/audio/speech", json=body, headers=headers)


@pytest.mark.parametrize("format_", ["pcm", "opus"])
def test_the_first_bytes_come_long_before_the_last(front: Front, format_: str) -> None:
    """Opus too: a few bytes a second, which a proxy that waits for a full buffer would keep."""
    body = {"input": "slow 3", "response_format": format_}
    started = time.monotonic()
    with front.client() as client, client.stream("POST", "/v1/audio/speech", json=body) as answer:
        assert answer.status_code == 200
        arrivals = [(time.monotonic() - started, len(piece)) for piece in answer.iter_raw()]
    if format_ == "pcm":
        assert sum(n for _, n in arrivals) == pytest.approx(3 * PCM_PER_S, rel=0.02)
    first, last = arrivals[0][0], arrivals[-1][0]
    assert last > 2.5, "the engine is slow"
    assert first < 1, f"the first bytes came after {first:.2f} s of {last:.2f} s"
    gaps = [b - a for (a, _), (b, _) in pairwise([(0.0, 0), *arrivals])]
    assert max(gaps) < 1, f"a piece was held for {max(gaps):.2f} s"


def test_events_are_not_held_back_either(front: Front) -> None:
    body = {"input": "slow 2", "response_format": "pcm", "stream_format": "sse"}
    started = time.monotonic()
    with front.client() as client, client.stream("POST", "/v1/audio/speech", json=body) as answer:
        lines = [(time.monotonic() - started, line) for line in answer.iter_lines() if line]
    assert "speech.audio.delta" in lines[0][1]
    assert lines[0][0] < 1.2
    assert lines[-1][0] > 1.5


def test_a_whole_websocket_session(front: Front) -> None:
    async def talk() -> tuple[list[str], int, int | None]:
        url = f"wss://localhost:{front.port}/v1/audio/speech-stream"
        kinds, n_bytes = [], 0
        # The page that the proxy serves may connect: its origin is the server's own, seen through
        # X-Forwarded-Host and -Proto.
        async with websockets.connect(
            url, ssl=front.tls, origin=f"https://localhost:{front.port}"
        ) as ws:
            for event in (
                {"type": "config"},
                {"type": "text", "text": "Good morning, everybody. "},
                {"type": "text", "text": "How are you?"},
                {"type": "end"},
            ):
                await ws.send(json.dumps(event))
            async for message in ws:
                if isinstance(message, bytes):
                    n_bytes += len(message)
                else:
                    kinds.append(json.loads(message)["type"])
        return kinds, n_bytes, ws.close_code

    kinds, n_bytes, code = asyncio.run(talk())
    assert kinds[0] == "ready"
    assert kinds[-1] == "done"
    assert kinds.count("fragment_done") >= 2
    assert n_bytes > PCM_PER_S
    assert code == 1000


def test_a_websocket_of_another_page_is_refused(front: Front) -> None:
    async def knock() -> int:
        url = f"wss://localhost:{front.port}/v1/audio/speech-stream"
        try:
            async with websockets.connect(url, ssl=front.tls, origin="https://evil.example"):
                return 101
        except websockets.exceptions.InvalidStatus as refused:
            return refused.response.status_code

    assert asyncio.run(knock()) == 403


def test_an_oversize_body_is_413(front: Front) -> None:
    with front.client() as client:
        answer = client.post("/v1/audio/voices", content=b"x" * (33 * 2**20))
        assert answer.status_code == 413
        # Nothing is broken afterwards.
        assert speak(client, "Hello.").status_code == 200


def test_the_client_is_seen_whatever_it_says_of_itself(front: Front) -> None:
    lies = {
        "X-Forwarded-For": "6.6.6.6",
        "X-Forwarded-Host": "evil.example",
        "X-Forwarded-Proto": "http",
    }
    marks: dict[str, dict[str, str]] = {"honest": {}, "liar": lies}
    with front.client() as client:
        for mark, said in marks.items():
            answer = client.get("/v1/models", headers={"X-Request-ID": f"mark-{mark}", **said})
            # A spoofed host would have been refused: without a key only loopback names pass.
            assert answer.status_code == 200, answer.text
    until = time.monotonic() + 5
    while True:
        lines = [line for one in front.fleet.instances for line in one.log()]
        seen = {str(line["request_id"]): line["client"] for line in lines if "client" in line}
        if {"mark-honest", "mark-liar"} <= seen.keys():
            break
        assert time.monotonic() < until, "the requests are in no log"
        time.sleep(0.05)
    assert seen["mark-honest"] == CLIENT
    assert seen["mark-liar"] == CLIENT


def test_metrics_are_not_for_the_world(front: Front) -> None:
    with front.client() as client:
        assert client.get("/metrics").status_code == 404
        assert client.get("/health").status_code == 200


def test_both_instances_work(front: Front) -> None:
    with front.client() as client, ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: speak(client, "slow 1").status_code, range(6)))
    assert answers == [200] * 6
    for one in front.fleet.instances:
        served = [line for line in one.log() if line.get("path") == "/v1/audio/speech"]
        assert served, "the instance with the fewest requests is asked"


BLIND_S = {"caddy": 1.0}
"""How long a request with a body may meet an instance that has gone: see deploy/caddy/Caddyfile."""


class Load:
    """Short requests through every proxy, one after the other in two threads each, until told to
    stop."""

    def __init__(self, whole: Fleet) -> None:
        self.results: list[tuple[str, float, int | str]] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(front,))
            for front in whole.fronts.values()
            for _ in range(2)
        ]

    def _run(self, front: Front) -> None:
        with front.client() as client:
            while not self._stop.is_set():
                began = time.monotonic()
                result: int | str
                try:
                    result = speak(client, "Hello there.").status_code
                except httpx.TransportError as error:
                    result = repr(error)
                self.results.append((front.name, began, result))

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def since(self, moment: float) -> dict[str, Counter[int | str]]:
        """proxy -> what became of the requests that began after it, or after its blind time."""
        found: dict[str, Counter[int | str]] = {}
        for name, began, result in self.results:
            if began > moment + BLIND_S.get(name, 0):
                found.setdefault(name, Counter())[result] += 1
        return found


def check_all_answered(seen: dict[str, Counter[int | str]]) -> None:
    assert seen.keys() == set(PROXIES)
    for name, results in seen.items():
        assert set(results) == {200}, f"{name}: {results}"
        assert results[200] >= 5, f"{name}: {results}"


# The last two: each ends an instance.


def test_a_shutdown_cuts_no_stream_and_refuses_nobody(whole: Fleet) -> None:
    time.sleep(1)  # what the tests before have left open has ended

    def listen(front: Front) -> tuple[int, int]:
        with front.client() as client:
            answer = speak(client, "slow 3")
            return answer.status_code, len(answer.content)

    with ThreadPoolExecutor(3) as pool:
        streams = [pool.submit(listen, front) for front in whole.fronts.values()]
        until = time.monotonic() + 10
        while sum(one.busy for one in whole.instances) < 3:
            assert time.monotonic() < until
        leaving = max(whole.instances, key=lambda one: one.busy)
        with Load(whole) as load:
            time.sleep(0.3)
            began = time.monotonic()
            leaving.process.send_signal(signal.SIGTERM)
            heard = [stream.result(30) for stream in streams]
            time.sleep(0.3)
    for status, n_bytes in heard:
        assert status == 200
        assert n_bytes == pytest.approx(3 * PCM_PER_S, rel=0.02), "the stream is whole"
    assert leaving.process.wait(10) == 0
    check_all_answered(load.since(began))
    whole.restart(leaving)


def test_an_instance_that_is_killed_is_replaced_by_the_other(whole: Fleet) -> None:
    gone = whole.instances[1]
    with Load(whole) as load:
        time.sleep(1)
        gone.process.kill()
        gone.process.wait()
        killed = time.monotonic()
        time.sleep(2)
    # What was under way on the killed one may be cut; who asks afterwards never notices.
    check_all_answered(load.since(killed))
    assert sum(results[200] for results in load.since(0).values()) > 15
    whole.restart(gone)
