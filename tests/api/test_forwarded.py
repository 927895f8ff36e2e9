"""Who is really asking: addresses, schemes and hosts behind proxies, and those who lie."""

from __future__ import annotations

import asyncio
import logging
import time

import httpx
import pytest
import websockets
from support import running

from phonate.api.forwarded import Forwarded, TrustedProxies, make_trusted
from phonate.engine.scripted import ScriptedEngine
from phonate.errors import SetupError

PROXIES = ["10.0.0.7", "192.168.0.0/16", "2001:db8::/32", "unix"]


def seen(headers, peer="10.0.0.7", kind="http", trusted=PROXIES):
    """The scope that the app gets."""
    found = {}

    async def app(scope, receive, send):
        found.update(scope)

    scope = {
        "type": kind,
        "scheme": "ws" if kind == "websocket" else "http",
        "client": None if peer is None else (peer, 999),
        "headers": [(b"host", b"backend:8080"), *((k.encode(), v.encode()) for k, v in headers)],
    }
    proxies = TrustedProxies(trusted) if trusted else None
    asyncio.run(Forwarded(app, proxies)(scope, None, None))
    return found


def client_of(*chain, **options):
    client = seen([("x-forwarded-for", part) for part in chain], **options)["client"]
    return client[0] if client else None


@pytest.mark.parametrize(
    ("chain", "client"),
    [
        (["203.0.113.5"], "203.0.113.5"),
        # The client wrote the first itself: only the last was written by somebody we know.
        (["1.2.3.4, 203.0.113.5"], "203.0.113.5"),
        (["1.2.3.4", "203.0.113.5"], "203.0.113.5"),
        (["203.0.113.5, 192.168.3.4"], "203.0.113.5"),
        (["127.0.0.1, 203.0.113.5, 192.168.3.4, 10.0.0.7"], "203.0.113.5"),
        # All trusted: the farthest.
        (["192.168.1.1, 192.168.3.4"], "192.168.1.1"),
        # What is no address ends the search at the one who wrote it.
        (["203.0.113.5, unknown"], "10.0.0.7"),
        (["203.0.113.5, , 192.168.3.4"], "192.168.3.4"),
        (["<script>"], "10.0.0.7"),
        ([""], "10.0.0.7"),
        (["203.0.113.5:4711"], "203.0.113.5"),
        (["[2001:db9::1]:4711"], "2001:db9::1"),
        (["2001:db9::1, 2001:db8::5"], "2001:db9::1"),
        (["203.0.113.5, ::ffff:192.168.3.4"], "203.0.113.5"),
        (['"[2001:db9::1]"'], "2001:db9::1"),
    ],
)
def test_the_client_is_the_last_one_that_is_no_proxy(chain, client):
    assert client_of(*chain) == client


@pytest.mark.parametrize("peer", ["10.0.0.8", "127.0.0.1", "192.169.0.1", "::1", "::ffff:10.0.0.8"])
def test_nobody_else_is_believed(peer):
    lies = [("x-forwarded-for", "1.2.3.4"), ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "localhost")]  # fmt: skip
    scope = seen(lies, peer=peer)
    assert scope["client"] == (peer, 999)
    assert scope["scheme"] == "http"
    assert scope["headers"] == [(b"host", b"backend:8080")], "nothing behind may read the lies"


def test_without_the_option_nobody_is_believed():
    scope = seen([("x-forwarded-for", "1.2.3.4")], trusted=None)
    assert scope["client"] == ("10.0.0.7", 999)


@pytest.mark.parametrize(
    "peer", ["10.0.0.7", "::ffff:10.0.0.7", "192.168.255.1", "2001:db8::1", None]
)
def test_every_way_to_name_a_proxy(peer):
    assert client_of("203.0.113.5", peer=peer) == "203.0.113.5"


def test_a_unix_peer_must_be_named():
    assert client_of("203.0.113.5", peer=None, trusted=["10.0.0.7"]) is None


@pytest.mark.parametrize(
    ("kind", "said", "scheme"),
    [
        ("http", "https", "https"), ("http", "HTTPS", "https"), ("http", "http", "http"),
        ("websocket", "https", "wss"), ("websocket", "wss", "wss"), ("websocket", "http", "ws"),
        ("http", "https, http", "http"), ("http", "gopher", "http"), ("http", "", "http"),
    ],
)  # fmt: skip
def test_the_scheme_is_the_nearest_proxys(kind, said, scheme):
    assert seen([("x-forwarded-proto", said)], kind=kind)["scheme"] == scheme


def test_the_host_takes_the_place_of_the_one_sent():
    scope = seen([("x-forwarded-host", "evil.example, speech.example:8443")])
    assert scope["headers"] == [(b"host", b"speech.example:8443")]
    assert scope["state"]["sent_host"] == "backend:8080"


@pytest.mark.parametrize("host", ["a b", "a/b", "", "x:y", "a@b", "[::1"])
def test_what_is_no_host_changes_nothing(host):
    assert seen([("x-forwarded-host", host)])["headers"] == [(b"host", b"backend:8080")]


@pytest.mark.parametrize("wrong", ["*", "proxy.example", "10.0.0.7/24", "0.0.0.0/0", "::/0", ""])
def test_a_proxy_is_an_address_or_a_network(wrong):
    with pytest.raises(SetupError, match="--trusted-proxy"):
        make_trusted(True, [wrong])


def test_the_two_options_need_each_other():
    with pytest.raises(SetupError, match="--trusted-proxy ADDRESS"):
        make_trusted(True, [])
    with pytest.raises(SetupError, match="--proxy-headers"):
        make_trusted(False, ["10.0.0.7"])
    assert make_trusted(False, []) is None


# ---------------------------------------------------------------- the whole server


@pytest.fixture(scope="module")
def behind():
    with running(ScriptedEngine(), proxy_headers=True, trusted_proxy=["127.0.0.1"]) as server:
        yield server


def logged_client(caplog):
    """The line is written after the answer was sent."""
    until = time.monotonic() + 10
    while not (found := [r.client for r in caplog.records if r.name == "phonate.access"]):
        assert time.monotonic() < until
        time.sleep(0.005)
    return found[0]


def test_the_access_log_has_the_client(behind, caplog):
    with caplog.at_level(logging.INFO, logger="phonate.access"):
        httpx.get(f"{behind.address}/health", headers={"X-Forwarded-For": "6.6.6.6, 203.0.113.5"})
        assert logged_client(caplog) == "203.0.113.5"


def test_a_server_that_was_not_told_believes_nobody(scripted, caplog):
    """uvicorn itself would believe 127.0.0.1 unless told otherwise."""
    with caplog.at_level(logging.INFO, logger="phonate.access"):
        httpx.get(f"{scripted.address}/health", headers={"X-Forwarded-For": "203.0.113.5"})
        assert logged_client(caplog) == "127.0.0.1"


def test_the_host_check_sees_the_host_that_was_asked_for(behind):
    def ask(**headers):
        return httpx.get(f"{behind.address}/v1/models", headers=headers).status_code

    assert ask() == 200
    assert ask(**{"X-Forwarded-Host": "localhost:8443"}) == 200
    assert ask(**{"X-Forwarded-Host": "speech.example"}) == 403
    # A page by DNS rebinding, through a proxy that passes on what it does not know.
    assert ask(**{"Host": "evil.example", "X-Forwarded-Host": "localhost"}) == 403


def knock(server, origin, **headers):
    async def connect():
        url = f"ws://127.0.0.1:{server.port}/v1/audio/speech-stream"
        try:
            async with websockets.connect(url, origin=origin, additional_headers=headers):
                return "open"
        except websockets.exceptions.InvalidStatus as refused:
            return refused.response.status_code

    return asyncio.run(connect())


def test_a_page_served_through_the_proxy_may_open_a_websocket():
    seen_by_proxy = {"X-Forwarded-Host": "speech.example", "X-Forwarded-Proto": "https",
                     "Authorization": "Bearer k"}  # fmt: skip
    options = {"proxy_headers": True, "trusted_proxy": ["127.0.0.1"], "api_key": "k"}
    with running(ScriptedEngine(), **options) as server:
        assert knock(server, "https://speech.example", **seen_by_proxy) == "open"
        # Whatever the proxy called us by.
        assert knock(server, f"http://127.0.0.1:{server.port}", **seen_by_proxy) == "open"
        assert knock(server, "https://backend.example", **seen_by_proxy) == 403
        assert knock(server, "https://evil.example", **seen_by_proxy) == 403


def test_the_page_of_the_server_itself_may_too(scripted):
    assert knock(scripted, f"http://127.0.0.1:{scripted.port}") == "open"


@pytest.mark.parametrize("prefix", ["", "/speech"])
def test_a_root_path_works_whether_the_proxy_cuts_it_off_or_not(prefix):
    with running(ScriptedEngine(), root_path="/speech", api_key="k") as server:
        at = server.address + prefix
        assert httpx.get(f"{at}/health").status_code == 200
        assert httpx.get(f"{at}/v1/models").status_code == 200
        assert httpx.get(f"{at}/").headers["content-type"].startswith("text/html")
        assert httpx.get(f"{at}/page/app.js").status_code == 200
        assert httpx.get(f"{at}/openapi.json").status_code == 401
        assert httpx.get(f"{server.address}/speechless/health").status_code == 401
        key = {"Authorization": "Bearer k"}
        spec = httpx.get(f"{at}/openapi.json", headers=key).json()
        assert spec["servers"] == [{"url": "/speech"}]
        answer = httpx.post(f"{at}/v1/audio/speech", json={"input": "Hi."}, headers=key)
        assert answer.status_code == 200
