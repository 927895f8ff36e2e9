"""Stopping: a real process, real signals, the scripted engine."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from stream_client import session
from support import decode

from served import Served, served

SLOW = "Slow speech is easier to follow."


def post(server: Served, text: str, **body: object) -> httpx.Response:
    return httpx.post(
        f"{server.address}/v1/audio/speech",
        json={"input": text, "response_format": "wav", **body},
        timeout=30,
    )


def begin(server: Served, text: str, **body: object) -> Iterator[bytes]:
    """A streamed answer, after its first bytes."""
    with httpx.stream(
        "POST",
        f"{server.address}/v1/audio/speech",
        json={"input": text, "response_format": "pcm", **body},
        timeout=30,
    ) as answer:
        assert answer.status_code == 200
        yield from answer.iter_raw()


def test_a_running_utterance_is_spoken_to_its_end(tmp_path):
    with served(tmp_path) as server:
        pieces = begin(server, SLOW)
        first = next(pieces)
        server.signal()
        server.wait_for_log("shutting down")
        assert httpx.get(f"{server.address}/ready").status_code == 503
        assert httpx.get(f"{server.address}/ready").json() == {"status": "draining"}
        assert httpx.get(f"{server.address}/health").status_code == 200
        refused = post(server, "Hello.")
        assert refused.status_code == 503
        assert refused.json()["error"]["type"] == "server_busy"
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["connection"] == "close"
        pcm = first + b"".join(pieces)
        assert len(pcm) / 48_000 == pytest.approx(2.0, abs=0.05)
        assert server.ended(5) == 0


def test_a_request_that_waits_is_sent_away_at_once(tmp_path):
    with served(tmp_path) as server:
        pieces = begin(server, SLOW)
        next(pieces)
        waiting: list[httpx.Response] = []
        other = threading.Thread(target=lambda: waiting.append(post(server, "Me too.")))
        other.start()
        until = time.monotonic() + 5
        while httpx.get(f"{server.address}/health").json()["queued_requests"] != 1:
            assert time.monotonic() < until
            time.sleep(0.01)
        server.signal()
        other.join(1)
        assert waiting[0].status_code == 503
        assert waiting[0].json()["error"]["code"] == "not_ready"
        list(pieces)


def test_what_takes_longer_than_the_shutdown_timeout_is_cut_visibly(tmp_path):
    with served(tmp_path, "--shutdown-timeout", "0.5") as server:
        pieces = begin(server, "Long stories never end.")
        next(pieces)
        asked = server.signal()
        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)
        assert server.ended(5) == 0
        assert 0.4 < time.monotonic() - asked < 4


def test_nothing_to_do_is_a_quick_end(tmp_path):
    with served(tmp_path) as server:
        httpx.get(f"{server.address}/health")
        asked = server.signal()
        assert server.ended(5) == 0
        assert time.monotonic() - asked < 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("text", ["Long stories never end.", "Hang on."])
def test_the_second_signal_is_immediate(tmp_path, number, text):
    with served(tmp_path) as server:
        pieces = begin(server, text)
        next(pieces)
        server.signal(number)
        server.wait_for_log("shutting down")
        asked = server.signal(number)
        assert server.ended(5) == 128 + number
        assert time.monotonic() - asked < 1


def test_a_hanging_engine_does_not_keep_the_process(tmp_path):
    with served(tmp_path, "--shutdown-timeout", "0.3") as server:
        pieces = begin(server, "Hang on.")
        next(pieces)
        asked = server.signal()
        server.ended(15)
        assert time.monotonic() - asked < 8
        assert "the engine is not freed" in server.logged()


# WebSocket ----------------------------------------------------------------------------------------


async def test_a_session_is_told_and_speaks_what_it_has(tmp_path):
    with served(tmp_path) as server:
        async with session(server, config={}) as c, session(server, config={}) as idle:
            await c.send("text", text=SLOW + " And this is held ba")
            await c.until_pcm()
            server.signal()
            told = await c.until("draining")
            assert told["finish_within_s"] == 20
            await c.send("text", text="too late")
            await c.send("flush")
            await c.send("end")
            assert await c.rest() == (1012, "shutdown")
            assert c.types[-1] == "done"
            texts = [e["text"] for e in c.of("fragment_done")]
            assert "".join(texts) == SLOW + " And this is held ba"
            assert await idle.rest() == (1012, "shutdown")
            assert idle.types == ["draining", "done"]
        assert server.ended(5) == 0


async def test_two_sessions_finish_though_only_one_can_speak_at_a_time(tmp_path):
    with served(tmp_path) as server:
        async with session(server, config={}) as one, session(server, config={}) as two:
            for c in (one, two):
                await c.send("text", text=SLOW)
                await c.send("flush")
            await one.until_pcm()
            server.signal()
            for c in (one, two):
                assert await c.rest() == (1012, "shutdown")
                assert c.types[-1] == "done"
                assert len(c.pcm) / 48_000 == pytest.approx(2.0, abs=0.05)


async def test_a_session_that_does_not_finish_is_given_up(tmp_path):
    with served(tmp_path, "--shutdown-timeout", "0.5") as server:
        async with session(server, config={}) as c, session(server) as new:
            await c.send("text", text="Long stories never end. Not even this one.")
            await c.send("flush")
            await c.until_pcm()
            server.signal()
            assert (await new.rest())[0] == 1012
            assert new.events[-1]["error"]["type"] == "server_busy"
            assert (await c.rest())[0] == 1012
            assert c.events[-1]["error"]["code"] == "not_ready"
        assert server.ended(5) == 0


async def test_a_paused_session_may_still_be_resumed(tmp_path):
    with served(tmp_path) as server:
        async with session(server, config={}) as c:
            await c.send("text", text=SLOW)
            await c.send("flush")
            await c.until_pcm()
            await c.send("pause")
            await c.until("paused")
            server.signal()
            await c.until("draining")
            await c.send("resume")
            assert await c.rest() == (1012, "shutdown")
            assert len(c.pcm) / 48_000 == pytest.approx(2.0, abs=0.05)


async def test_no_session_is_opened_any_more(tmp_path):
    with served(tmp_path) as server:
        pieces = begin(server, SLOW)
        next(pieces)
        server.signal()
        server.wait_for_log("shutting down")
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as sock:
            sock.sendall(
                b"GET /v1/audio/speech-stream HTTP/1.1\r\nHost: localhost\r\n"
                b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            answer = b""
            while piece := sock.recv(4096):
                answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503")
        assert b"retry-after" in head.lower()
        assert json.loads(body)["error"]["type"] == "server_busy"
        list(pieces)


async def test_vllm_omnis_sessions_close_with_the_same_code(tmp_path):
    with served(tmp_path) as server:
        async with session(server, path="/v1/audio/speech/stream") as c:
            await c.send("session.config", stream_audio=True)
            await c.send("input.text", text=SLOW)
            await c.send("input.done")
            await c.until_pcm()
            server.signal()
            assert await c.rest() == (1012, "shutdown")
            assert c.types[-1] == "session.done"
            assert len(c.pcm) / 48_000 == pytest.approx(2.0, abs=0.05)


def test_a_whole_answer_arrives_too(tmp_path):
    with served(tmp_path) as server:
        answers: list[httpx.Response] = []
        asking = threading.Thread(target=lambda: answers.append(post(server, SLOW, stream=False)))
        asking.start()
        until = time.monotonic() + 5
        while httpx.get(f"{server.address}/health").json()["active_requests"] != 1:
            assert time.monotonic() < until
            time.sleep(0.01)
        server.signal()
        asking.join(10)
        samples, rate = decode(answers[0].content)
        assert len(samples) / rate == pytest.approx(2.0, abs=0.05)
        assert server.ended(5) == 0
