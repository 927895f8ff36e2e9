"""What a client may do before, between and beside requests, over raw sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import time
from collections.abc import Iterator

import httpx
import pytest
from stream_client import session
from support import Running, running
from websockets.exceptions import InvalidStatus

from phonate.api import wire
from phonate.engine.scripted import Emit, ScriptedEngine

GET = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n"
UPGRADE = (
    b"GET /v1/audio/speech-stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
    b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@contextlib.contextmanager
def connected(server: Running) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as sock:
        yield sock


def rest_of(sock: socket.socket) -> bytes:
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := sock.recv(65536):
            data += piece
    return data


def one_answer(sock: socket.socket) -> bytes:
    """Up to the end of the body that Content-Length announces."""
    data = b""
    while piece := sock.recv(65536):
        data += piece
        head, end, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        if end and length and len(body) >= int(length[1]):
            break
    return data


def parsed(answer: bytes) -> tuple[int, dict[str, str], dict[str, object]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines)}
    return int(first.split()[1]), headers, json.loads(body)["error"]


def refused(server: Running) -> dict[str, int]:
    return dict(server.app.state.traffic.refused)


# The head -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [b"G", GET, UPGRADE + b"X-Slow: "])
def test_a_head_that_drips_is_408(start):
    with running(ScriptedEngine(), header_timeout=0.4) as server, connected(server) as sock:
        sock.sendall(start)
        began = time.monotonic()
        sock.settimeout(0.05)
        answer = b""
        while time.monotonic() - began < 5:
            try:
                if not (piece := sock.recv(4096)):
                    break
                answer += piece
            except TimeoutError:
                with contextlib.suppress(OSError):
                    sock.sendall(b"x")
        status, headers, error = parsed(answer)
        assert status == 408
        assert error["code"] == "request_timeout"
        assert headers["connection"] == "close"
        assert headers["x-request-id"].startswith("req_")
        assert 0.3 < time.monotonic() - began < 3
        assert refused(server)["head_timeout"] == 1


def test_a_connection_opened_ahead_of_need_is_closed_without_a_word():
    with running(ScriptedEngine(), header_timeout=0.3) as server, connected(server) as sock:
        assert rest_of(sock) == b""
        assert "head_timeout" not in refused(server)


def test_the_second_head_of_a_connection_has_a_clock_too():
    with running(ScriptedEngine(), header_timeout=0.4) as server, connected(server) as sock:
        sock.sendall(GET + b"\r\n")
        assert one_answer(sock).startswith(b"HTTP/1.1 200")
        sock.sendall(b"GET /v1/mod")
        assert parsed(rest_of(sock))[0] == 408


def test_an_idle_connection_is_closed_after_its_time():
    with running(ScriptedEngine(), keep_alive_timeout=0.3) as server, connected(server) as sock:
        sock.sendall(GET + b"\r\n")
        assert one_answer(sock).startswith(b"HTTP/1.1 200")
        began = time.monotonic()
        assert rest_of(sock) == b""
        assert 0.2 < time.monotonic() - began < 2


LARGE = {
    "in one line": b"X-Large: " + b"a" * 9000 + b"\r\n",
    "in all": b"".join(b"X-%d: %s\r\n" % (i, b"a" * 2000) for i in range(10)),
    "by number": b"".join(b"X-%d: a\r\n" % i for i in range(150)),
    "endless": b"X-Large: " + b"a" * 60_000,
}


@pytest.mark.parametrize("how", LARGE)
@pytest.mark.parametrize("start", [GET, UPGRADE], ids=["http", "websocket"])
def test_a_large_head_is_431(scripted, start, how):
    with connected(scripted) as sock:
        sock.sendall(start + LARGE[how] + b"\r\n")
        status, headers, error = parsed(one_answer(sock))
        assert status == 431
        assert error["code"] == "head_too_large"
        assert headers["x-request-id"]


def test_a_long_target_is_431(scripted):
    with connected(scripted) as sock:
        sock.sendall(b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert parsed(one_answer(sock))[0] == 431


def test_a_fairly_large_head_is_fine(scripted):
    cookies = b"".join(b"X-%d: %s\r\n" % (i, b"a" * 300) for i in range(40))
    with connected(scripted) as sock:
        sock.sendall(GET + cookies + b"\r\n")
        assert one_answer(sock).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # a TLS client
        b"hello\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nBad Header: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    ],
)
def test_what_is_not_http_is_400_in_the_envelope(scripted, garbage):
    with connected(scripted) as sock:
        sock.sendall(garbage)
        status, headers, error = parsed(one_answer(sock))
        assert status in (400, 501)
        assert error["type"] == "invalid_request_error"
        assert headers["connection"] == "close"
    assert httpx.get(f"{scripted.address}/health").status_code == 200


# The body -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/audio/speech", "/v1/audio/voices"])
def test_a_body_that_drips_is_408(path):
    with running(ScriptedEngine(), body_timeout=0.5) as server, connected(server) as sock:
        sock.sendall(
            b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000\r\n\r\n{" % path.encode()
        )
        began = time.monotonic()
        sock.settimeout(0.1)
        answer = b""
        while not answer and time.monotonic() - began < 5:
            with contextlib.suppress(TimeoutError):
                answer = one_answer(sock)
                break
            sock.sendall(b" ")
        assert parsed(answer)[0] == 408
        assert 0.4 < time.monotonic() - began < 3


def test_the_rest_of_a_body_nobody_wants_is_not_read_for_ever(monkeypatch):
    monkeypatch.setattr(wire, "LINGER_S", 0.4)
    with running(ScriptedEngine(), api_key="k") as server, connected(server) as sock:
        sock.sendall(
            b"POST /v1/audio/voices HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30000000\r\n\r\n"
        )
        assert one_answer(sock).startswith(b"HTTP/1.1 401")
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - began < 5:
                sock.sendall(b"x")
                time.sleep(0.05)
        assert 0.3 < time.monotonic() - began < 3
        assert refused(server)["rest_of_body"] == 1


def test_large_bodies_are_bounded_together():
    with running(ScriptedEngine(), max_request_bytes="64k") as server:
        with contextlib.ExitStack() as stack:
            for _ in range(8):
                sock = stack.enter_context(connected(server))
                sock.sendall(
                    b"POST /v1/audio/voices HTTP/1.1\r\nHost: localhost\r\n"
                    b"Content-Type: application/json\r\nContent-Length: 65536\r\n\r\n"
                    + b" "
                    * 65000
                )
            time.sleep(0.5)
            answer = httpx.post(f"{server.address}/v1/audio/speech", content=b" " * 60_000,
                                headers={"Content-Type": "application/json"})  # fmt: skip
            assert answer.status_code == 503
            assert answer.json()["error"]["type"] == "server_busy"
        until = time.monotonic() + 5
        while True:
            answer = httpx.post(f"{server.address}/v1/audio/speech", json={"input": "Hi."})
            if answer.status_code == 200:
                break
            assert time.monotonic() < until
            time.sleep(0.05)


# The number of connections ------------------------------------------------------------------------


@contextlib.contextmanager
def crowded(server: Running, n: int) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for _ in range(n):
            sock = stack.enter_context(connected(server))
            sock.sendall(GET + b"\r\n")
            assert one_answer(sock).startswith(b"HTTP/1.1 200")
        yield


def test_connections_beyond_the_limit_are_503_and_health_answers():
    with running(ScriptedEngine(), max_connections=5) as server:
        with crowded(server, 5):
            answer = httpx.get(
                f"{server.address}/v1/models", headers={"Origin": "http://localhost"}
            )
            assert answer.status_code == 503
            assert answer.json()["error"]["type"] == "server_busy"
            assert "--max-connections" in answer.json()["error"]["message"]
            assert answer.headers["retry-after"]
            assert answer.headers["connection"] == "close"
            assert answer.headers["access-control-allow-origin"] == "http://localhost"
            health = httpx.get(f"{server.address}/health")
            assert health.status_code == 200
            assert health.headers["connection"] == "close"
        until = time.monotonic() + 5
        while httpx.get(f"{server.address}/v1/models").status_code != 200:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert refused(server)["full"] >= 1


async def test_a_websocket_beyond_the_limit_is_503():
    with running(ScriptedEngine(), max_connections=3) as server, crowded(server, 3):
        with pytest.raises(InvalidStatus) as caught:
            async with session(server):
                pass
        assert caught.value.response.status_code == 503


async def test_sessions_count_as_connections():
    with running(ScriptedEngine(), max_connections=2) as server:
        async with session(server, config={}), session(server, config={}):
            answer = await asyncio.to_thread(httpx.get, f"{server.address}/v1/models")
            assert answer.status_code == 503


def test_far_beyond_the_limit_nothing_is_listened_to(monkeypatch):
    monkeypatch.setattr(wire, "SPARE", 1)
    with (
        running(ScriptedEngine(), max_connections=2) as server,
        crowded(server, 2),
        connected(server),
        connected(server) as sock,
    ):
        status, headers, error = parsed(rest_of(sock))
        assert status == 503
        assert error["type"] == "server_busy"
        assert headers["retry-after"] == "1"


# Clients that do not read -------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_does_not_read_is_cut_off(stream):
    engine = ScriptedEngine({"endless": [Emit(seconds=600, hz=440, chunk_s=10)]})
    options = {"send_timeout": 0.5, "max_output_bytes": "200MiB", "keep_alive_timeout": 0.2}
    with running(engine, **options) as server:
        body = {"input": "endless", "response_format": "pcm", "stream": stream}
        data = json.dumps(body).encode()
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", server.port))
            sock.sendall(
                b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data
            )
            until = time.monotonic() + 20
            while not refused(server).get("send_timeout"):
                assert time.monotonic() < until, "it was never cut off"
                time.sleep(0.05)
        assert server.engine.wait_until_idle(10)
