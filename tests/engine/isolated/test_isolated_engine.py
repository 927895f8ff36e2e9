"""An engine in a process of its own: what callers see while that works, dies, hangs and returns."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from isolated_engines import FAILS_WHILE, QUICK, in_thread, isolated, pid_of

from phonate.engine.base import CancelToken, Engine, Mortal, SynthesisRequest
from phonate.engine.isolated.values import ForeignError
from phonate.engine.scripted import ScriptedEngine
from phonate.errors import Busy, EngineDied, EngineFailure, InvalidRequest, SetupError

posix = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")


@pytest.fixture(scope="module")
def engine():
    engine = isolated(max_batch=4, api_key="secret")
    yield engine
    engine.close()


@pytest.fixture(autouse=True)
def up_again(request):
    """A test may leave the engine dead; the next one begins with a live one."""
    yield
    if "engine" in request.fixturenames:
        come_back(request.getfixturevalue("engine"))


def come_back(engine, timeout_s=20):
    until = time.monotonic() + timeout_s
    while not engine.vitals.up:
        assert time.monotonic() < until, "the engine did not come back"
        time.sleep(0.005)


def speak(engine, text, token=None, sink=None, **fields):
    chunks = []

    def keep(chunk):
        chunks.append(chunk)
        return sink(chunk) if sink else True

    result = engine.synthesize(SynthesisRequest(text, **fields), keep, token or CancelToken())
    return result, chunks


def restarts(engine, cause):
    return engine.vitals.restarts[cause]


def test_is_an_engine_that_can_die(engine):
    as_engine: Engine = engine
    assert as_engine.info.max_batch == 4
    assert isinstance(engine, Mortal)
    assert not isinstance(ScriptedEngine(), Mortal)


def test_the_process_is_another_one_in_a_session_of_its_own(engine):
    pid = pid_of(engine)
    assert pid != os.getpid()
    if os.name == "posix":
        assert os.getsid(pid) == pid


def test_same_samples_as_in_this_process(engine):
    result, chunks = speak(engine, "Hello there.", seed=3)
    here, expected = speak(ScriptedEngine(), "Hello there.", seed=3)
    assert result == here
    assert [len(c) for c in chunks] == [len(c) for c in expected]
    np.testing.assert_array_equal(np.concatenate(chunks), np.concatenate(expected))


@pytest.mark.parametrize(
    ("text", "cause", "words"),
    [("abort", "crashed", "SIGABRT" if os.name == "posix" else ""), ("exit", "exited", "code 3")],
)
def test_a_death_fails_the_call_and_the_next_one_is_served(engine, caplog, text, cause, words):
    before = restarts(engine, cause)
    with pytest.raises(EngineDied, match=words) as caught:
        speak(engine, text)
    assert (caught.value.status, caught.value.type) == (502, "server_error")
    assert "again" in caught.value.message
    assert speak(engine, "And on.")[0].finish_reason == "stop"
    assert restarts(engine, cause) == before + 1
    lost = [r for r in caplog.records if "is lost" in r.getMessage()]
    assert len(lost) == 1
    assert words in lost[0].getMessage()
    assert lost[0].levelno == logging.ERROR


@posix
@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGABRT", "SIGBUS"])
def test_a_signal_in_the_middle_ends_all_running_calls(engine, name):
    speaking = threading.Barrier(3)
    pid = pid_of(engine)
    with ThreadPoolExecutor(2) as pool:
        seen = []

        def first_chunk(_):
            if threading.get_ident() not in seen:
                seen.append(threading.get_ident())
                speaking.wait(10)
            return True

        calls = [pool.submit(speak, engine, "long", sink=first_chunk) for _ in range(2)]
        speaking.wait(10)
        os.kill(pid, getattr(signal, name))
        for call in calls:
            with pytest.raises(EngineDied, match=name):
                call.result(10)
    assert speak(engine, "And on.")[0].finish_reason == "stop"
    assert pid_of(engine) != pid


@posix
def test_a_stopped_process_is_noticed_without_any_call(engine):
    before = restarts(engine, "silent")
    os.kill(pid_of(engine), signal.SIGSTOP)
    until = time.monotonic() + 20
    while restarts(engine, "silent") == before:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert speak(engine, "And on.")[0].finish_reason == "stop"


def test_a_synthesis_without_progress_ends_with_its_process():
    engine = isolated(stall_timeout=1)
    try:
        with pytest.raises(EngineDied, match=r"no progress for 1 s"):
            speak(engine, "hang")
        assert restarts(engine, "stalled") == 1
        assert speak(engine, "And on.")[0].finish_reason == "stop"
        # A listener that blocks is no stall: the ball is not with the engine.
        assert speak(engine, "And on.", sink=lambda _: not time.sleep(0.15))[0].n_frames > 4
        slow = [1.8]
        assert speak(engine, "x", sink=lambda _: not (slow and time.sleep(slow.pop())))
        assert restarts(engine, "stalled") == 1
    finally:
        engine.close()


@pytest.mark.parametrize(("stall_timeout", "silent_s"), [(30, 10), (3, 3)])
def test_silence_is_borne_no_longer_than_a_stall(stall_timeout, silent_s):
    engine = in_thread(ScriptedEngine(), stall_timeout=stall_timeout)
    assert engine._supervisor._timing.silent == silent_s
    engine.close()


def test_a_blocking_sink_holds_the_engine_and_no_other_call(engine):
    """One chunk is on its way at most, and the pipe is free for others."""
    held, release = threading.Event(), threading.Event()

    def block(_):
        held.set()
        return release.wait(30)

    with ThreadPoolExecutor(1) as pool:
        token = CancelToken()
        call = pool.submit(speak, engine, "long", token, block)
        assert held.wait(10)
        for _ in range(5):
            assert speak(engine, "Another listener.")[0].finish_reason == "stop"
        process = engine._supervisor._process
        assert [c.frames.qsize() for c in process._calls.values()] == [0]
        token.set("test")
        release.set()
        result, chunks = call.result(10)
    assert result.finish_reason == "cancelled"
    assert len(chunks) == 1


def test_a_token_reaches_the_process_within_a_frame(engine):
    token, times = CancelToken(), []
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(speak, engine, "long", token, lambda _: times.append(1) or True)
        while len(times) < 3:
            time.sleep(0.001)
        token.set("client_gone")
        began = time.monotonic()
        assert call.result(10)[0].finish_reason == "cancelled"
    assert time.monotonic() - began < 1


def test_errors_of_the_engine_keep_their_kind(engine):
    with pytest.raises(InvalidRequest) as caught:
        speak(engine, "x", speaker="nobody")
    assert (caught.value.param, caught.value.code) == ("voice", "voice_not_found")
    with pytest.raises(ForeignError, match="KeyError: 'of ours'") as bug:
        speak(engine, "bug")
    assert "Traceback" in str(bug.value)
    assert engine.vitals.up


def test_an_error_of_the_sink_stops_the_engine_and_comes_back(engine):
    def sink(_):
        raise KeyError("bridge")

    with pytest.raises(KeyError, match="bridge"):
        speak(engine, "long", sink=sink)
    assert not engine._supervisor._process._calls


def test_voices_are_extracted_there(engine):
    audio = np.sin(np.arange(48_000, dtype=np.float32))
    here = ScriptedEngine(info=engine.info).extract_voice(audio, "hi")
    there = engine.extract_voice(audio, "hi")
    np.testing.assert_array_equal(there.embedding, here.embedding)
    np.testing.assert_array_equal(there.codes, here.codes)
    assert there.codes.dtype == np.int32
    assert there.text == "hi"
    assert speak(engine, "Hello.", reference=there)[0].finish_reason == "stop"


def test_what_is_printed_and_logged_there_is_logged_here(engine, caplog):
    caplog.set_level(logging.INFO)
    assert speak(engine, "print")[0].finish_reason == "stop"  # no frame was disturbed
    speak(engine, "log")
    until = time.monotonic() + 5
    wanted = {"to standard output", "to standard error", "from a process of its own"}
    wanted |= {"told by the process"}
    while not wanted <= {r.getMessage() for r in caplog.records}:
        assert time.monotonic() < until, caplog.records
        time.sleep(0.01)
    told = [r for r in caplog.records if r.getMessage() == "told by the process"]
    assert [(r.name, r.levelname) for r in told] == [("phonate.engine.scripted", "WARNING")]


def test_while_it_cannot_start_calls_wait_and_then_are_told_when(tmp_path, monkeypatch):
    flag = tmp_path / "flag"
    monkeypatch.setenv(FAILS_WHILE, str(flag))
    engine = isolated(timing=QUICK.__class__(**{**_fields(QUICK), "wait": 2.0}))
    try:
        flag.touch()
        with pytest.raises(EngineDied):
            speak(engine, "abort")
        assert not engine.vitals.up
        token = CancelToken()
        token.set("gone")
        assert speak(engine, "x", token)[0].finish_reason == "cancelled"
        with pytest.raises(Busy, match="being restarted") as caught:
            speak(engine, "x")
        assert caught.value.retry_after_s >= 1
        assert str(tmp_path) not in caught.value.message, "clients see no paths"
        assert restarts(engine, "failed_start") >= 1
        flag.unlink()
        assert speak(engine, "And on.")[0].finish_reason == "stop"
    finally:
        engine.close()


def _fields(timing):
    return {name: getattr(timing, name) for name in timing.__dataclass_fields__}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("impossible", "^--talker x: no such file.$"),
        ("faulty", "a bug in the factory"),
        ("absent", "exit code 1"),
        pytest.param("aborting", r"SIGABRT.*GGML_ASSERT\(n_head > 0\) failed", marks=posix),
    ],
)
def test_an_engine_that_cannot_be_made_is_an_error_of_the_start(name, words):
    before = threading.active_count()
    with pytest.raises(SetupError, match=words):
        isolated(name)
    assert threading.active_count() == before


def test_an_engine_that_comes_back_as_another_is_not_served(engine):
    supervisor = engine._supervisor
    build = supervisor._build
    settings = {**build["settings"], "max_batch": 5}
    supervisor._build = {**build, "settings": settings}
    with pytest.raises(EngineDied):
        speak(engine, "exit")
    until = time.monotonic() + 10
    before = restarts(engine, "failed_start")
    while restarts(engine, "failed_start") == before:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert not engine.vitals.up
    supervisor._build = build


def test_closed_is_closed_and_nothing_is_left():
    before = threading.active_count(), _open_files()
    engine = isolated()
    pid = pid_of(engine)
    for _ in range(2):
        with pytest.raises(EngineDied):
            speak(engine, "exit")
        speak(engine, "And on.")
    engine.warm_up()
    pid = pid_of(engine)
    engine.close()
    engine.close()
    with pytest.raises(EngineFailure, match="closed"):
        speak(engine, "Hello.")
    assert not engine.vitals.up
    assert (threading.active_count(), _open_files()) == before
    if os.name == "posix":
        with pytest.raises(ProcessLookupError):  # a zombie would still be found
            os.kill(pid, 0)


def _open_files():
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


PARENT = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from isolated_engines import isolated, pid_of
engine = isolated()
print(pid_of(engine), flush=True)
if sys.argv[2] == "stopped":
    os.kill(pid_of(engine), signal.SIGSTOP)
os.kill(os.getpid(), signal.SIGKILL)
"""


@posix
@pytest.mark.parametrize(
    "process",
    [
        "running",
        pytest.param(
            "stopped",
            marks=pytest.mark.skipif(
                sys.platform != "linux", reason="only Linux kills a child for its parent's death"
            ),
        ),
    ],
)
def test_it_does_not_outlive_a_server_that_was_killed(process):
    server = subprocess.run(
        [sys.executable, "-c", PARENT, str(Path(__file__).parent), process],
        stdout=subprocess.PIPE,
        check=False,
    )
    assert server.returncode == -signal.SIGKILL
    pid, until = int(server.stdout), time.monotonic() + 10
    while _alive(pid):
        assert time.monotonic() < until, "the engine's process is still there"
        time.sleep(0.01)


def _alive(pid):
    """A zombie that nobody reaps here is dead enough."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


@posix
def test_signals_for_all_processes_of_a_service_do_not_end_it(engine):
    pid, before = pid_of(engine), engine.vitals.restarts
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        os.kill(pid, getattr(signal, name))
    assert speak(engine, "Still here.")[0].finish_reason == "stop"
    assert (pid_of(engine), engine.vitals.restarts) == (pid, before)
