"""The process that Pico runs in: reproducible, and gone when it has to be."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from phonate.engine.base import CancelToken
from phonate.engine.builtin.pico_process import PicoProcess
from phonate.errors import EngineFailure

installed = pytest.mark.skipif(
    importlib.util.find_spec("py_nanotts") is None,
    reason="py-nanotts is optional, and has no wheel for macOS on arm64",
)


@pytest.fixture
def process():
    process = PicoProcess()
    yield process
    process.close()


@installed
def test_the_same_text_sounds_the_same_every_time(process):
    """Without fresh memory the tenth call already differs, in length too (see the worker)."""
    language, text = "de-DE", "Guten Morgen, wie geht es Ihnen heute?"
    first = process.speak(text, language, CancelToken())
    for n in range(60):
        process.speak(f"Etwas anderes, Nummer {n}.", ("fr-FR", "it-IT")[n % 2], CancelToken())
        assert process.speak(text, language, CancelToken()) == first, f"call {n}"
    process.close()
    assert process.speak(text, language, CancelToken()) == first, "a new process"


HANGING = (sys.executable, "-c", "import time; time.sleep(60)")


def test_a_hanging_text_can_be_cancelled():
    process = PicoProcess(HANGING)
    token = CancelToken()
    threading.Timer(0.3, token.set, ["test"]).start()
    started = time.perf_counter()
    assert process.speak("Hallo.", "de-DE", token) == b""
    assert time.perf_counter() - started < 5
    assert process._process is None


def test_a_hanging_text_ends_by_itself():
    process = PicoProcess(HANGING, max_seconds=0.3)
    with pytest.raises(EngineFailure, match="no answer within"):
        process.speak("Hallo.", "de-DE", CancelToken())
    assert process._process is None


def test_waiting_for_a_turn_can_be_cancelled():
    process = PicoProcess(HANGING)
    stop, second = CancelToken(), CancelToken()
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(process.speak, "Hallo.", "de-DE", stop)
        while process._process is None:
            time.sleep(0.01)
        two = pool.submit(process.speak, "Hallo.", "de-DE", second)
        second.set("test")
        assert two.result(5) == b""
        assert not one.done()
        stop.set("test")
        assert one.result(5) == b""


def test_a_process_that_ends_in_the_middle_is_told():
    process = PicoProcess((sys.executable, "-c", "input()"))
    with pytest.raises(EngineFailure, match="ended in the middle"):
        process.speak("Hallo.", "de-DE", CancelToken())


@pytest.mark.skipif(not hasattr(signal, "alarm"), reason="needs SIGALRM, which Windows has not")
def test_the_worker_ends_a_hang_even_without_its_parent():
    code = """
import re, sys, types
from phonate.engine.builtin import pico_worker
class NanoTTS:
    def speak(self, text, **_):
        re.match("(a+)+$", "a" * 64 + "b")  # for ever, in C, with the interpreter's lock held
sys.modules["py_nanotts"] = types.SimpleNamespace(NanoTTS=NanoTTS)
pico_worker.MAX_SECONDS = 1
pico_worker.main()
"""
    request = b'{"text": "", "voice": ""}\n'
    done = subprocess.run([sys.executable, "-c", code], input=request, timeout=30, check=False)
    assert done.returncode == -signal.SIGALRM


@installed
def test_a_dead_process_is_replaced(process):
    first = process.speak("Hallo.", "de-DE", CancelToken())
    process._process.kill()
    process._process.wait()
    assert process.speak("Hallo.", "de-DE", CancelToken()) == first


@installed
def test_an_error_of_the_runtime_is_told(process):
    with pytest.raises(EngineFailure, match="Unsupported voice"):
        process.speak("Hallo.", "xx-XX", CancelToken())
    assert process.speak("Hallo.", "de-DE", CancelToken())
