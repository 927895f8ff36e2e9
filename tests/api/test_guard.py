"""The door, over real sockets: keys, hosts, origins, sizes."""

import base64
import socket

import httpx
import pytest
from support import running

from phonate.api.guard import is_loopback
from phonate.app import create_app
from phonate.engine.scripted import Fail, ScriptedEngine
from phonate.errors import SetupError
from phonate.settings import load


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text("# people\nanna:secret-a\n\nsecret-b\n")
    with running(ScriptedEngine(), api_key="main-key", api_key_file=str(file)) as server:
        server.key_file = file
        yield server


def speak(server, **headers):
    return httpx.post(f"{server.address}/v1/audio/speech", json={"input": "Hi."}, headers=headers)


@pytest.mark.parametrize("key", ["main-key", "secret-a", "secret-b"])
def test_every_key_opens(locked, key):
    assert speak(locked, Authorization=f"Bearer {key}").status_code == 200
    assert speak(locked, Authorization=f"bearer  {key}").status_code == 200


@pytest.mark.parametrize(
    "value",
    [None, b"", b"Bearer", b"Bearer wrong", b"Basic main-key", b"Bearer k\xc3\xa9y",
     b"Bearer \xff\xfe", b"Bearer main-key extra", b"anna:secret-a", b"Bearer anna:secret-a"],
)  # fmt: skip
def test_everything_else_is_401(locked, value):
    headers = {} if value is None else {"Authorization": value}
    answer = httpx.post(f"{locked.address}/v1/audio/speech", json={"input": "x"}, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["error"]["type"] == "authentication_error"
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200), ("GET", "/ready", 200), ("GET", "/v1/test", 200),
        ("GET", "/v1/capabilities", 200), ("GET", "/v1/models", 200),
        ("GET", "/v1/models/tts-1", 200),
        ("GET", "/v1/audio/models", 200), ("GET", "/v1/audio/voices", 200),
        ("POST", "/v1/audio/voices", 401), ("DELETE", "/v1/audio/voices/x", 401),
        ("POST", "/v1/audio/speech/batch", 401), ("POST", "/v1/text/languages", 401),
        ("GET", "/v1/audio/voice_consents", 401), ("GET", "/nothing", 401),
        ("GET", "/openapi.json", 401),
    ],
)  # fmt: skip
def test_what_is_open_without_a_key(locked, method, path, status):
    assert httpx.request(method, locked.address + path).status_code == status


def test_listings_can_be_protected():
    with running(ScriptedEngine(), api_key="k", protect_listings=True) as server:
        assert httpx.get(f"{server.address}/v1/models").status_code == 401
        assert httpx.get(f"{server.address}/health").status_code == 200


def test_an_empty_bearer_is_fine_when_no_key_is_set(scripted):
    """SillyTavern sends one; most client libraries would refuse to."""
    with socket.create_connection(("127.0.0.1", scripted.port), timeout=5) as sock:
        sock.sendall(
            b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \r\n\r\n"
        )
        assert sock.recv(1000).startswith(b"HTTP/1.1 200")


def test_the_key_file_is_reread(locked):
    import time

    assert speak(locked, Authorization="Bearer new-key").status_code == 401
    locked.key_file.write_text("anna:secret-a\nnew-key\n")
    until = time.monotonic() + 10
    while speak(locked, Authorization="Bearer new-key").status_code == 401:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert speak(locked, Authorization="Bearer secret-b").status_code == 401
    locked.key_file.write_text("anna:secret-a\nsecret-b\n")


def test_nobody_without_a_key_makes_us_read_a_body(locked):
    with socket.create_connection(("127.0.0.1", locked.port), timeout=5) as sock:
        sock.sendall(
            b"POST /v1/audio/voices HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30000000\r\n\r\n"
        )
        assert sock.recv(1000).startswith(b"HTTP/1.1 401")


def test_without_a_key_only_loopback_hosts_are_answered(scripted):
    url = f"{scripted.address}/v1/models"
    for host in ("localhost", "127.0.0.1:99", "[::1]:8080", "LOCALHOST", "phonate.localhost"):
        assert httpx.get(url, headers={"Host": host}).status_code == 200, host
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1"):
        answer = httpx.get(url, headers={"Host": host})
        assert answer.status_code == 403, host
        assert "Host" in answer.json()["error"]["message"]


def test_with_a_key_any_host_is_fine(locked):
    answer = speak(locked, Host="speech.example", Authorization="Bearer main-key")
    assert answer.status_code == 200


ORIGIN = "http://localhost:3000"


def test_cors_on_preflight_success_and_refusal(locked):
    url = f"{locked.address}/v1/audio/speech"
    preflight = httpx.options(
        url,
        headers={
            "Origin": ORIGIN,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type",
        },
    )
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == ORIGIN
    for key, status in (("main-key", 200), ("wrong", 401)):
        answer = speak(locked, Origin=ORIGIN, Authorization=f"Bearer {key}")
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert "X-Request-ID" in answer.headers["access-control-expose-headers"]
    answer = httpx.post(
        url, json={"input": ""}, headers={"Origin": ORIGIN, "Authorization": "Bearer main-key"}
    )
    assert answer.status_code == 400
    assert answer.headers["access-control-allow-origin"] == ORIGIN


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nothing", b"", 404), ("PUT", "/v1/models", b"", 405),
        ("POST", "/v1/audio/speech", b" " * 70_000, 413), ("POST", "/v1/audio/speech", b"{", 400),
        ("POST", "/v1/audio/speech", b'{"input":"bad"}', 500),
    ],
)  # fmt: skip
def test_cors_headers_are_on_every_kind_of_error(method, path, body, status):
    engine = ScriptedEngine({"bad": [Fail(RuntimeError("a bug"))]})
    headers = {"Origin": ORIGIN, "Content-Type": "application/json"}
    with running(engine, max_request_bytes="64k") as server:
        answer = httpx.request(method, server.address + path, content=body, headers=headers)
    assert answer.status_code == status
    assert answer.headers["access-control-allow-origin"] == ORIGIN


def test_other_origins_get_no_cors_headers(locked):
    answer = speak(locked, Origin="https://evil.example", Authorization="Bearer main-key")
    assert "access-control-allow-origin" not in answer.headers


def test_named_origins_take_the_place_of_loopback():
    with running(ScriptedEngine(), cors_origin=["https://app.example"]) as server:
        assert (
            speak(server, Origin="https://app.example").headers["access-control-allow-origin"]
            == "https://app.example"
        )
        assert "access-control-allow-origin" not in speak(server, Origin=ORIGIN).headers


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cors_origin": ["*"]}, "--cors-origin"),
        ({"host": "0.0.0.0"}, "--allow-lan"),
        ({"host": "0.0.0.0", "allow_lan": True}, "--api-key"),
        ({"host": "192.168.1.5", "api_key": "k"}, "--allow-lan"),
        ({"api_key_file": "/nonexistent/keys"}, "--api-key-file"),
        ({"voice_alias": ["x"]}, "--voice-alias"),
        ({"voice_alias": ["x=nobody"]}, "nobody"),
        ({"voice_language_route": ["tone:de=nobody"]}, "nobody"),
    ],
)
def test_settings_that_would_be_unsafe_or_wrong_do_not_start(options, words):
    with pytest.raises(SetupError, match=words), running(ScriptedEngine(), **options):
        pass


def test_on_a_unix_socket_the_address_is_of_no_account(tmp_path):
    options = {"host": "0.0.0.0", "uds": str(tmp_path / "s"), "voice_dir": str(tmp_path / "v")}
    assert create_app(load(options, {}).settings, ScriptedEngine())


def test_an_empty_key_file_does_not_start(tmp_path):
    empty = tmp_path / "keys"
    empty.write_text("# nothing\n\n")
    with (
        pytest.raises(SetupError, match="no key"),
        running(ScriptedEngine(), api_key_file=str(empty)),
    ):
        pass


@pytest.mark.parametrize(
    "host", ["localhost", "127.9.9.9", "[::1]", "::1", "a.localhost", "LocalHost."]
)
def test_loopback_names(host):
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "localhost.example", "127.0.0.1.example", "1.2.3.4"]
)
def test_other_names(host):
    assert not is_loopback(host)


def test_keys_in_a_websocket_handshake(locked):
    import asyncio

    import websockets

    async def knock(path="", **options):
        url = f"ws://127.0.0.1:{locked.port}/v1/audio/speech-stream{path}"
        try:
            async with websockets.connect(url, **options) as ws:
                return ws.subprotocol or "open"
        except websockets.exceptions.InvalidStatus as refused:
            return refused.response.status_code

    encoded = base64.urlsafe_b64encode(b"secret-a").decode().rstrip("=")
    results = asyncio.run(
        _all(
            knock(),
            knock("?api_key=wrong"),
            knock("?api_key=main-key"),
            knock(additional_headers={"Authorization": "Bearer secret-a"}),
            knock(subprotocols=["phonate", f"bearer.{encoded}"]),
            knock(
                additional_headers={"Authorization": "Bearer secret-a"},
                origin="http://evil.example",
            ),
            knock(
                additional_headers={"Authorization": "Bearer secret-a"}, origin="http://localhost:1"
            ),
        )
    )
    assert results == [401, 401, "open", "open", "phonate", 403, "open"]


def test_the_page_of_this_server_may_open_a_websocket(locked):
    """Under whatever name it is reached, but never without the key."""
    import asyncio

    import websockets

    async def knock(origin, **headers):
        try:
            async with websockets.connect(
                "ws://speech.example:8080/v1/audio/speech-stream",
                host="127.0.0.1",
                port=locked.port,
                origin=origin,
                additional_headers=headers,
            ):
                return "open"
        except websockets.exceptions.InvalidStatus as refused:
            return refused.response.status_code

    key = {"Authorization": "Bearer secret-a"}
    results = asyncio.run(
        _all(
            knock("http://speech.example:8080", **key),
            knock("https://Speech.example:8080", **key),
            knock("http://speech.example:8080"),
            knock("http://speech.example", **key),
            knock("http://other.example:8080", **key),
            knock("null", **key),
        )
    )
    assert results == ["open", "open", 401, 403, 403, 403]


async def _all(*awaitables):
    return [await one for one in awaitables]


def test_the_query_with_a_key_is_not_logged(locked, caplog):
    import asyncio

    import websockets

    async def knock():
        url = f"ws://127.0.0.1:{locked.port}/v1/audio/speech-stream?api_key=main-key"
        async with websockets.connect(url):
            pass

    with caplog.at_level("DEBUG", logger="phonate"), caplog.at_level("DEBUG", logger="uvicorn"):
        asyncio.run(knock())
        speak(locked, Authorization="Bearer main-key")
    assert "main-key" not in caplog.text
