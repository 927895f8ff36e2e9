"""An engine that hangs: noticed once, on a clock of the test's own; then in a running server."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time

import httpx
import numpy as np
import pytest
from support import running

from phonate.engine.scripted import DEFAULT_INFO, Emit, Hang, ScriptedEngine
from phonate.speech.service import Limits, SpeechService
from phonate.speech.shaping import SoundOptions
from phonate.speech.watch import StallWatch


class Call:
    def __init__(self, name: str) -> None:
        self.name = name
        self.moved_at = 0.0

    def stalled_for(self, now: float) -> float:
        return now - self.moved_at

    async def wait_ended(self) -> None: ...


def test_each_hanging_call_is_told_once(caplog):
    one, two = Call("req_1"), Call("req_2")
    stalls = []
    watch = StallWatch(lambda: [one, two], 30, lambda: stalls.append(1))
    watch.look(29)
    assert not stalls
    two.moved_at = 29
    for now in (31, 32, 33):
        watch.look(now)
    assert len(stalls) == 1
    assert [r.request_id for r in caplog.records] == ["req_1"]
    assert "--stall-timeout" in caplog.text
    one.moved_at = 33
    watch.look(34)
    assert "moves again" in caplog.text
    watch.look(64)
    assert len(stalls) == 3


def metric(server, name):
    text = httpx.get(f"{server.address}/metrics").text
    return next(float(x.split()[1]) for x in text.splitlines() if x.startswith(name + " "))


def until(check, timeout_s=5.0):
    end = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.02)


@pytest.mark.parametrize("client", ["waits", "leaves"])
def test_a_hang_is_degraded_keeps_its_slot_and_disturbs_nobody(client, caplog):
    hang = Hang(threading.Event())
    engine = ScriptedEngine({"stuck": [Emit.tone(0.4), hang]})
    options = {"stall_timeout": 0.4, "synthesis_timeout": 2, "max_queued_requests": 1}
    with running(engine, **options) as server:
        speech = f"{server.address}/v1/audio/speech"
        body = {"input": "stuck", "response_format": "pcm"}
        with httpx.stream("POST", speech, json=body, timeout=20) as answer:
            sound = answer.iter_raw()  # kept: an iterator that is dropped closes the connection
            next(sound)
            assert hang.reached.wait(5)
            if client == "leaves":
                answer.close()
            until(lambda: httpx.get(f"{server.address}/health").status_code == 503)
            health = httpx.get(f"{server.address}/health").json()
            assert health["status"] == "degraded"
            assert health["stalled"]
            assert health["active_requests"] == 1
            until(lambda: metric(server, "phonate_engine_stalls_total") == 1)
            assert metric(server, "phonate_stalled") == 1
            assert "has made no progress" in caplog.text
            # The slot is not handed out again: the next one waits in vain, and says so.
            other = httpx.post(speech, json={"input": "Hello."}, timeout=20)
            assert other.status_code == 504
            assert len(engine.calls) == 1
            hang.until.set()
        until(lambda: httpx.get(f"{server.address}/health").status_code == 200)
        assert httpx.post(speech, json={"input": "Hello."}, timeout=20).status_code == 200


def test_other_routes_answer_at_once_while_the_engine_hangs():
    hang = Hang(threading.Event())
    with (
        running(ScriptedEngine({"stuck": [hang]}), stall_timeout=0.2) as server,
        httpx.Client(base_url=server.address) as http,
    ):
        asking = threading.Thread(
            target=httpx.post,
            args=(f"{server.address}/v1/audio/speech",),
            kwargs={"json": {"input": "stuck"}, "timeout": 20},
        )
        asking.start()
        assert hang.reached.wait(5)
        slowest = {}
        for path in ("/health", "/ready", "/v1/models", "/v1/audio/voices", "/metrics"):
            took = []
            for _ in range(9):
                began = time.monotonic()
                http.get(path)
                took.append(time.monotonic() - began)
            slowest[path] = sorted(took)[4]
        hang.until.set()
        asking.join(10)
    # The median of nine: this machine may be busy with other things.
    assert max(slowest.values()) < 0.1, slowest


async def test_a_recording_that_is_listened_to_for_ever_is_noticed_too():
    class Deaf(ScriptedEngine):
        go_on = threading.Event()

        def extract_voice(self, audio, text):
            self.go_on.wait(20)
            return super().extract_voice(audio, text)

    engine = Deaf(info=dataclasses.replace(DEFAULT_INFO, can_clone=True, embedding_dim=8))
    service = SpeechService(engine, Limits(stall_timeout_s=0.1), SoundOptions())
    listening = asyncio.ensure_future(service.extract_voice(np.zeros(100, np.float32), None))
    await asyncio.sleep(0.3)
    assert service.health().stalled
    assert service.admission.active == 1
    listening.cancel()  # Whoever uploaded it has left; the engine has not.
    await asyncio.sleep(0.05)
    assert service.admission.active == 1
    engine.go_on.set()
    await asyncio.to_thread(until, lambda: not service.health().stalled)
    assert service.admission.active == 0
    await service.close()
