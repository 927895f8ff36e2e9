"""The service manager's side: a datagram socket of our own hears what a real server tells it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest

from phonate.notify import Notifier


def listener(address):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind("\0" + address[1:] if address[0] == "@" else address)
    sock.settimeout(30)
    return sock


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path_factory):
    address = str(tmp_path_factory.mktemp("n") / "notify")
    if request.param == "abstract":
        address = f"@phonate-test-{os.getpid()}-{time.monotonic_ns()}"
    with listener(address) as sock:
        yield sock, address


def heard(sock):
    return sock.recv(4096).decode().split("\n")


def test_the_words(manager):
    sock, address = manager
    told = Notifier.from_environment({"NOTIFY_SOCKET": address})
    told.ready("Listening")
    assert heard(sock) == ["READY=1", "STATUS=Listening", f"MAINPID={os.getpid()}"]
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    told.reloading()
    first, stamp = heard(sock)
    assert first == "RELOADING=1"
    assert 0 <= int(stamp.removeprefix("MONOTONIC_USEC=")) - before < 1_000_000
    told.stopping()
    assert heard(sock)[0] == "STOPPING=1"
    told.alive()
    assert heard(sock) == ["WATCHDOG=1"]


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None), ({"WATCHDOG_USEC": "0"}, None), ({}, None),
    ],
)  # fmt: skip
def test_how_often_a_sign_of_life_is_wanted(environ, seconds):
    told = Notifier.from_environment({"NOTIFY_SOCKET": "/x", **environ})
    assert told.watchdog_s == seconds


def test_without_a_manager_nothing_happens():
    told = Notifier.from_environment({"WATCHDOG_USEC": "1000000"})
    assert told.watchdog_s is None
    told.ready("Listening")


def test_a_manager_that_is_gone_is_no_reason_to_stop(caplog):
    Notifier("/nonexistent/notify").ready("Listening")
    assert "cannot be told" in caplog.text


def test_a_manager_that_does_not_read_does_not_hold_us(manager):
    _, address = manager
    told = Notifier(address)
    started = time.monotonic()
    for _ in range(3000):  # far more than a socket's queue
        told.alive()
    assert time.monotonic() - started < 10


def test_a_real_server_from_start_to_stop(manager, tmp_path):
    sock, address = manager
    keys = tmp_path / "keys"
    keys.write_text("first-key\n")
    command = [sys.executable, "-m", "phonate", "serve", "--port", "0", "--voice-dir",
               str(tmp_path / "voices"), "--api-key-file", str(keys)]  # fmt: skip
    # Longer between two signs than the test takes, so that their order is known.
    environ = {**os.environ, "NOTIFY_SOCKET": address, "WATCHDOG_USEC": "600000000"}
    environ.pop("WATCHDOG_PID", None)
    server = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)
    try:
        assert heard(sock) == ["STATUS=Loading the voice"]
        ready = heard(sock)
        assert ready[0] == "READY=1"
        url = ready[1].removeprefix("STATUS=Listening on ")
        assert ready[2] == f"MAINPID={server.pid}"
        assert httpx.get(f"{url}/ready").status_code == 200, "ready means bound and warm"
        assert heard(sock) == ["WATCHDOG=1"]
        keys.write_text("second-key\n")
        server.send_signal(signal.SIGHUP)
        assert heard(sock)[0] == "RELOADING=1"
        assert heard(sock)[0] == "READY=1"
        answer = httpx.get(f"{url}/openapi.json", headers={"Authorization": "Bearer second-key"})
        assert answer.status_code == 200
        server.send_signal(signal.SIGTERM)
        assert heard(sock)[0] == "STOPPING=1"
        assert server.wait(30) in (0, -signal.SIGTERM)
    finally:
        server.kill()
        server.wait()
