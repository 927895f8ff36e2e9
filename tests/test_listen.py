"""Sockets: addresses, and unix sockets that are left behind, taken, replaced and cleaned up."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time

import httpx
import pytest

from phonate.errors import SetupError
from phonate.listen import address_of, bind, bind_unix, listening


@pytest.fixture
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("s") / "p.sock"


def test_mode_and_address_and_cleaning(path):
    with listening("127.0.0.1", 0, path, "660") as sock:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert address_of(sock) == f"unix:{path}"
    assert not path.exists()


def test_a_strange_umask_does_not_change_the_mode(path):
    before = os.umask(0o027)
    try:
        bind_unix(path, 0o666).close()
        assert os.umask(0o027) == 0o027, "the umask is as before"
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666


def test_a_socket_that_a_dead_server_left_is_replaced(path):
    bind_unix(path, 0o600).close()
    assert path.exists()
    with listening("", 0, path, "600") as sock:
        sock.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_one_that_answers_stays(path):
    with listening("", 0, path, "600") as sock:
        sock.listen()
        with pytest.raises(SetupError, match="another server"):
            bind_unix(path, 0o600)
        assert path.exists()


def test_a_file_is_not_touched(path):
    path.write_text("mine")
    with pytest.raises(SetupError, match="another kind"):
        bind_unix(path, 0o600)
    assert path.read_text() == "mine"


def test_what_a_successor_put_there_stays(path):
    with listening("", 0, path, "600"):
        path.unlink()
        successor = bind_unix(path, 0o600)
    assert path.exists()
    successor.close()


@pytest.mark.parametrize("wrong", ["nowhere/p.sock", "x" * 200])
def test_a_path_that_cannot_be_is_said(path, wrong):
    with pytest.raises(SetupError, match="--uds"):
        bind_unix(path.parent / wrong, 0o600)


def test_a_port_in_use_is_said():
    with bind("127.0.0.1", 0) as first:
        first.listen()
        with pytest.raises(SetupError, match="--port"):
            bind("127.0.0.1", first.getsockname()[1])
        assert address_of(first).startswith("http://127.0.0.1:")


def test_a_server_speaks_over_a_unix_socket_and_takes_it_away(path, tmp_path):
    command = [sys.executable, "-m", "phonate", "serve", "--uds", str(path),
               "--voice-dir", str(tmp_path / "voices")]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert f"listens on unix:{path}" in server.stdout.readline()
            assert f"curl --unix-socket {path} http://localhost/v1" in server.stdout.readline()
            transport = httpx.HTTPTransport(uds=str(path))
            with httpx.Client(transport=transport, base_url="http://localhost") as client:
                assert client.get("/ready").status_code == 200
                body = {"input": "Hello.", "response_format": "wav"}
                answer = client.post("/v1/audio/speech", json=body, timeout=60)
                assert answer.content[:4] == b"RIFF"
        finally:
            server.send_signal(signal.SIGTERM)
        server.wait(30)
    until = time.monotonic() + 5
    while path.exists():
        assert time.monotonic() < until
        time.sleep(0.01)
