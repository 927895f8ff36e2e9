"""The server over an engine that dies: each client gets a documented answer, the next one audio."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from support import pcm_floats, running
from websockets.asyncio.client import connect

sys.path.insert(0, str(Path(__file__).parent.parent / "engine" / "isolated"))
sys.path.insert(0, str(Path(__file__).parent.parent / "soak"))

from crash import Crash, Way
from isolated_engines import FAILS_WHILE, QUICK, isolated, pid_of
from stream_client import PATH, Client

from phonate.engine.choose import create_engine
from phonate.settings import load

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")


@pytest.fixture(scope="module")
def flag(tmp_path_factory):
    return tmp_path_factory.mktemp("isolated") / "flag"


@pytest.fixture(scope="module")
def server(flag):
    """The scripted engine in a process; while `flag` is there, no new process comes up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent.parent / "engine" / "isolated"))
        patch.setenv(FAILS_WHILE, str(flag))
        timing = QUICK.__class__(beat=0.05, silent=3, first_backoff=0.02, last_backoff=0.1, wait=3)
        with running(isolated(timing=timing, max_batch=2), max_batch=2) as server:
            yield server


def ask(server, text, **body):
    body = {"input": text, "response_format": "pcm", **body}
    return httpx.post(f"{server.address}/v1/audio/speech", json=body, timeout=30)


def get(server, path):
    return httpx.get(server.address + path, timeout=10)


def test_a_death_before_the_first_sound_is_a_502_and_the_next_request_is_served(server):
    answer = ask(server, "abort")
    assert answer.status_code == 502
    error = answer.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("server_error", "engine_died", None)
    assert "SIGABRT" in error["message"]
    assert answer.headers["x-request-id"]
    assert pcm_floats(ask(server, "And on.").content).any()


def test_a_death_in_mid_stream_breaks_the_transfer(server):
    with httpx.stream(
        "POST", f"{server.address}/v1/audio/speech", timeout=30,
        json={"input": "long", "response_format": "pcm"},
    ) as answer:  # fmt: skip
        assert answer.status_code == 200
        pieces = answer.iter_raw()
        next(pieces)
        os.kill(pid_of(server.engine), signal.SIGSEGV)
        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)
    assert ask(server, "And on.").status_code == 200


def test_health_readiness_and_metrics_tell_while_it_is_down(server, flag):
    assert get(server, "/ready").json() == {"status": "ready"}
    before = get(server, "/health").json()
    assert (before["status"], before["engine_up"]) == ("ok", True)
    flag.touch()
    try:
        assert ask(server, "abort").status_code == 502
        health = get(server, "/health")
        assert health.status_code == 503
        assert (health.json()["status"], health.json()["engine_up"]) == ("degraded", False)
        ready = get(server, "/ready")
        assert (ready.status_code, ready.json()) == (503, {"status": "restarting"})
        refused = ask(server, "Hello.")
        assert refused.status_code == 503
        assert refused.json()["error"]["type"] == "server_busy"
        assert int(refused.headers["retry-after"]) >= 1
        metrics = get(server, "/metrics").text
        assert "phonate_engine_up 0.0" in metrics
    finally:
        flag.unlink()
    assert ask(server, "And on.").status_code == 200
    after = get(server, "/health")
    assert after.status_code == 200
    assert after.json()["engine_restarts_total"] > before["engine_restarts_total"]
    assert get(server, "/ready").status_code == 200
    rows = [r for r in get(server, "/metrics").text.splitlines() if "engine_restarts_total{" in r]
    causes = {row.split('"')[1]: float(row.rpartition(" ")[2]) for row in rows}
    assert set(causes) == {"crashed", "exited", "stalled", "silent", "failed_start"}
    assert causes["crashed"] >= 2
    assert causes["failed_start"] >= 1


def test_a_request_that_comes_during_the_restart_waits_for_it(server, flag):
    flag.touch()
    assert ask(server, "abort").status_code == 502
    threading.Timer(0.5, flag.unlink).start()
    began = time.monotonic()
    assert ask(server, "Hello.").status_code == 200
    assert time.monotonic() - began > 0.3


async def test_a_session_loses_a_fragment_and_goes_on(server):
    async with connect(server.address.replace("http", "ws") + PATH, proxy=None) as socket:
        client = Client(socket)
        await client.send("config")
        await client.send("text", text="Abort right here. And this is spoken by the next engine. ")
        await client.send("end")
        assert await client.rest() == (1000, "done")
    assert [event["code"] for event in client.of("warning")] == ["engine_died"]
    assert [e["finish_reason"] for e in client.of("fragment_done")] == ["error", "stop"]
    assert client.pcm


def test_a_client_that_leaves_stops_the_engine_there(server):
    with httpx.stream(
        "POST", f"{server.address}/v1/audio/speech", timeout=30,
        json={"input": "long", "response_format": "pcm"},
    ) as answer:  # fmt: skip
        next(answer.iter_raw())
    until = time.monotonic() + 5
    while server.service.health().active_requests:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert not server.engine._supervisor._process._calls


def test_the_engine_is_gone_with_the_server():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent.parent / "engine" / "isolated"))
        with running(isolated()) as server:
            pid = pid_of(server.engine)
            assert ask(server, "Hello.").status_code == 200
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.fixture(scope="module")
def native(library, model_files):
    """A native library and a tiny talker, in a process of its own."""
    files = model_files("base")
    options = {
        "isolate_engine": True,
        "talker": str(files.talker),
        "codec": str(files.codec),
        "library": str(library.path),
        "cpu_threads": 1,
        "synthesis_timeout": 600,
    }
    with running(create_engine(load(options, {}).settings), **options) as server:
        yield server


def test_the_same_samples_as_from_a_library_in_this_process(native, library, model_files):
    files = model_files("base")
    options = {"talker": str(files.talker), "codec": str(files.codec),
               "library": str(library.path), "cpu_threads": 1}  # fmt: skip
    with running(create_engine(load(options, {}).settings), **options) as inside:
        expected = ask(inside, "Hello.", seed=4, max_new_tokens=3)
    answer = ask(native, "Hello.", seed=4, max_new_tokens=3)
    assert answer.status_code == 200, answer.text
    assert answer.content == expected.content
    assert native.engine.info == inside.engine.info


@pytest.mark.timeout(300)
async def test_deaths_of_a_native_engine_under_load(native):
    """The short form of `make crash`."""
    crash = Crash(native.address, lambda: pid_of(native.engine), seed=1)
    await crash.run([Way.ABRT, Way.SEGV, Way.KILL], gap_s=(0.0, 0.3))
    assert len(crash.recoveries) == 3
    assert crash.outcomes["audio"] > 3
    assert native.service.health().ok
