"""Requests a minute: the buckets on a clock of their own, then a running server."""

from __future__ import annotations

import httpx
import pytest
from stream_client import session
from support import running
from websockets.exceptions import InvalidStatus

from phonate.api.rates import Buckets, client_name, duration
from phonate.engine.scripted import ScriptedEngine


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_minutes_worth_at_once_then_the_rate():
    clock = Clock()
    buckets = Buckets(6, clock)
    assert [buckets.take("a").remaining for _ in range(6)] == [5, 4, 3, 2, 1, 0]
    refused = buckets.take("a")
    assert not refused.granted
    assert refused.wait_s == pytest.approx(10)
    assert refused.full_in_s == pytest.approx(60)
    clock.now += 9.9
    assert not buckets.take("a").granted
    clock.now += 0.1
    assert buckets.take("a").granted
    assert not buckets.take("a").granted
    clock.now += 60
    assert [buckets.take("a").granted for _ in range(7)] == [True] * 6 + [False]


def test_a_refusal_costs_nothing():
    clock = Clock()
    buckets = Buckets(1, clock)
    assert buckets.take("a").granted
    for _ in range(100):
        assert not buckets.take("a").granted
    clock.now += 60
    assert buckets.take("a").granted


def test_clients_have_buckets_of_their_own():
    buckets = Buckets(1, Clock())
    assert buckets.take("a").granted
    assert buckets.take("b").granted
    assert not buckets.take("a").granted


def test_memory_is_bounded_and_full_buckets_are_forgotten():
    clock = Clock()
    buckets = Buckets(60, clock, max_clients=100)
    for i in range(1000):
        buckets.take(f"client {i}")
    assert len(buckets) == 100
    clock.now += 120
    for i in range(60):
        buckets.take(f"other {i % 3}")
    assert len(buckets) == 3


def test_who_keeps_knocking_is_not_forgotten_for_newcomers():
    buckets = Buckets(2, Clock(), max_clients=10)
    buckets.take("busy")
    buckets.take("busy")
    for i in range(50):
        buckets.take(f"client {i}")
        if i % 5 == 0:
            assert not buckets.take("busy").granted


@pytest.mark.parametrize(
    ("owner", "address", "name"),
    [
        ("anna", ("10.0.0.1", 1), "key anna"),
        ("", ("10.0.0.1", 1), "10.0.0.1"),
        ("", ("::ffff:10.0.0.1", 1), "10.0.0.1"),
        ("", ("2001:db8:1:2:3:4:5:6", 1), "2001:db8:1:2::/64"),
        ("", ("2001:db8:1:2::9%eth0", 1), "2001:db8:1:2::/64"),
        ("", None, "local socket"),
        ("", ("testclient", 1), "unknown"),
    ],
)
def test_whom_limits_count_for(owner, address, name):
    assert client_name(owner, address) == name


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0ms"), (0.12, "120ms"), (1.5, "1.5s"), (20, "20s"), (360, "6m0s")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


# A running server ---------------------------------------------------------------------------------


def ask(server, **headers):
    return httpx.post(f"{server.address}/v1/audio/speech", json={"input": "Hi."}, headers=headers)


def test_429_with_openais_headers():
    with running(ScriptedEngine(), max_requests_per_minute=2) as server:
        first = ask(server, Origin="http://localhost")
        assert first.status_code == 200
        assert first.headers["x-ratelimit-limit-requests"] == "2"
        assert first.headers["x-ratelimit-remaining-requests"] == "1"
        assert first.headers["x-ratelimit-reset-requests"] == "30s"
        assert "X-RateLimit-Remaining-Requests" in first.headers["access-control-expose-headers"]
        assert ask(server).status_code == 200
        refused = ask(server, Origin="http://localhost")
        assert refused.status_code == 429
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert 29 <= int(refused.headers["retry-after"]) <= 30
        assert 28_000 <= int(refused.headers["retry-after-ms"]) <= 30_000
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        assert refused.headers["access-control-allow-origin"] == "http://localhost"
        assert refused.headers["x-request-id"]
        for path in ("/health", "/ready", "/v1/models", "/v1/audio/voices", "/metrics"):
            assert httpx.get(server.address + path).status_code == 200, path
        assert server.app.state.traffic.refused["rate_limit"] == 1


def test_each_key_has_its_own(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("anna:a-key\nben:b-key\n")
    with running(ScriptedEngine(), max_requests_per_minute=1, api_key_file=str(keys)) as server:
        assert ask(server, Authorization="Bearer a-key").status_code == 200
        assert ask(server, Authorization="Bearer a-key").status_code == 429
        assert ask(server, Authorization="Bearer b-key").status_code == 200
        for _ in range(3):  # A wrong key is no request of anybody.
            assert ask(server, Authorization="Bearer c-key").status_code == 401


async def test_a_handshake_counts_and_is_429():
    with running(ScriptedEngine(), max_requests_per_minute=1) as server:
        async with session(server) as c:
            assert c.socket.response.headers["x-ratelimit-remaining-requests"] == "0"
        with pytest.raises(InvalidStatus) as caught:
            async with session(server):
                pass
        assert caught.value.response.status_code == 429
        assert caught.value.response.headers["retry-after"]


async def test_sessions_per_key(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("anna:a-key\nben:b-key\n")
    a, b = ({"Authorization": f"Bearer {key}"} for key in ("a-key", "b-key"))
    options = {"max_sessions_per_key": 1, "api_key_file": str(keys)}
    with running(ScriptedEngine(), **options) as server:
        async with session(server, headers=a), session(server, headers=b):
            with pytest.raises(InvalidStatus) as caught:
                async with session(server, headers=a):
                    pass
            assert caught.value.response.status_code == 429
            assert b"rate_limit_error" in caught.value.response.body
        async with session(server, headers=a):
            pass


def test_no_limit_no_headers(scripted):
    assert "x-ratelimit-limit-requests" not in ask(scripted).headers
