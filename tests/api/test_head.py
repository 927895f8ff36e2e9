"""HEAD on a real server: what GET says, without the body."""

import http.client

import pytest
from support import running

from phonate.engine.scripted import ScriptedEngine


def asked(address, method, path):
    host = address.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    "path", ["/health", "/ready", "/v1/models", "/v1/audio/voices", "/v1/capabilities", "/metrics"]
)
def test_head_says_what_get_says_without_the_body(path):
    with running(ScriptedEngine()) as server:
        status, headers, body = asked(server.address, "HEAD", path)
        wanted, got, full = asked(server.address, "GET", path)
    assert (status, body) == (wanted, b"")
    assert status == 200
    assert full
    assert headers["content-type"] == got["content-type"]
    assert "content-length" in headers


def test_head_is_no_way_around_what_get_lacks():
    with running(ScriptedEngine()) as server:
        assert asked(server.address, "HEAD", "/v1/nothing")[0] == 404
        status, headers, _ = asked(server.address, "HEAD", "/v1/audio/speech")
    assert (status, headers["allow"]) == (405, "POST")
