"""What a client of a fleet on Ray Serve sees. In this order: the last tests lose replicas."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator

import httpx
import pytest
import websockets
import yaml
from clients import Listener, Load, body
from cluster import DEPLOY, LONG, PATIENCE_S, SENTENCE, Cluster, wait_until
from ray.serve.schema import ServeDeploySchema
from websockets.asyncio.client import ClientConnection

import phonate.ray


def ids_of(answer: httpx.Response) -> list[str]:
    return answer.headers.get_list("x-request-id")


def is_refusal(status: int, headers: httpx.Headers, content: bytes) -> bool:
    """OpenAI's shape, with a hint when to come back."""
    error = json.loads(content)["error"]
    return (
        status == 503
        and error["type"] == "server_busy"
        and int(headers["retry-after"]) >= 1
        and len(headers.get_list("x-request-id")) == 1
    )


def test_the_configuration_of_deploy_is_one_for_ray(fleet: Cluster) -> None:
    text = (DEPLOY / "serve.yaml").read_text()
    (application,) = ServeDeploySchema.model_validate(yaml.safe_load(text)).applications
    assert application.import_path == "phonate.ray:app"
    assert phonate.ray.app(application.args)


def test_speech_comes_while_it_is_made(fleet: Cluster) -> None:
    heard = Listener(fleet, SENTENCE * 30).done()
    assert heard.status == 200
    assert heard.error is None
    assert len(heard.content) > 60 * 48_000
    assert heard.first_s < heard.whole_s / 2
    print(f"\nfirst sound {heard.first_s:.2f} s, whole {heard.whole_s:.2f} s")


@pytest.mark.parametrize("text", ["Hello.", ""], ids=["spoken", "refused"])
def test_a_request_has_one_id(fleet: Cluster, text: str) -> None:
    def ask(**headers: str) -> list[str]:
        url = f"{fleet.url}/v1/audio/speech"
        return ids_of(httpx.post(url, json=body(text), headers=headers, timeout=PATIENCE_S))

    assert ask(**{"X-Request-ID": "mine-1"}) == ["mine-1"]
    (made,) = ask()
    assert made
    (instead,) = ask(**{"X-Request-ID": "not one of ours"})
    assert instead != "not one of ours"


def test_what_ray_says_itself_is_in_our_shape(fleet: Cluster) -> None:
    """A path that the app knows is the app's, also where the app says no."""
    answer = httpx.get(f"{fleet.url}/nowhere", timeout=PATIENCE_S)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"
    assert httpx.get(f"{fleet.url}/-/healthz", timeout=PATIENCE_S).text == "success"


def test_health_and_readiness_are_the_apps(fleet: Cluster) -> None:
    assert httpx.get(f"{fleet.url}/health", timeout=PATIENCE_S).json()["status"] == "ok"
    assert httpx.get(f"{fleet.url}/ready", timeout=PATIENCE_S).json() == {"status": "ready"}


@contextlib.asynccontextmanager
async def session(fleet: Cluster) -> AsyncIterator[ClientConnection]:
    url = fleet.url.replace("http", "ws") + "/v1/audio/speech-stream"
    async with websockets.connect(
        url, open_timeout=PATIENCE_S, close_timeout=PATIENCE_S, ping_timeout=None
    ) as ws:
        await ws.send(json.dumps({"type": "config", "voice": "alloy"}))
        ready = json.loads(await ws.recv())
        assert ready["type"] == "ready"
        yield ws


async def rest_of(ws: ClientConnection) -> tuple[list[str], int, int | None]:
    """Types of the events until the end, bytes of sound, and the code of the close."""
    events, n_bytes = [], 0
    with contextlib.suppress(websockets.ConnectionClosed):
        while True:
            message = await asyncio.wait_for(ws.recv(), PATIENCE_S)
            if isinstance(message, bytes):
                n_bytes += len(message)
            else:
                events.append(json.loads(message)["type"])
    return events, n_bytes, ws.close_code


async def say(ws: ClientConnection, text: str) -> None:
    await ws.send(json.dumps({"type": "text", "text": text}))


async def end(ws: ClientConnection) -> None:
    await ws.send(json.dumps({"type": "end"}))


async def test_a_session_needs_no_affinity(fleet: Cluster) -> None:
    """It lives on one connection, which has one replica. Six at a time, their events mixed."""
    async with contextlib.AsyncExitStack() as stack:
        open_ones = [await stack.enter_async_context(session(fleet)) for _ in range(6)]
        for word in ("Good ", "morning, ", "everybody. "):
            for ws in open_ones:
                await say(ws, word)
        for ws in open_ones:
            await end(ws)
        for events, n_bytes, code in await asyncio.gather(*map(rest_of, open_ones)):
            assert events[-1] == "done"
            assert n_bytes > 24_000
            assert code == 1000


async def test_round_trips_of_a_session_are_short(fleet: Cluster) -> None:
    async with session(fleet) as ws:
        times = []
        for _ in range(50):
            began = time.monotonic()
            await ws.send(json.dumps({"type": "config", "voice": "alloy"}))
            assert json.loads(await ws.recv())["type"] == "ready"
            times.append(time.monotonic() - began)
    print(f"\nround trip {sorted(times)[25] * 1000:.1f} ms")


async def test_a_refused_handshake_says_why(fleet: Cluster) -> None:
    url = fleet.url.replace("http", "ws") + "/v1/audio/speech-stream"
    with pytest.raises(websockets.InvalidStatus) as refused:
        await websockets.connect(url, origin="https://evil.example", open_timeout=PATIENCE_S)
    assert refused.value.response.status_code == 403


def test_a_client_that_leaves_frees_the_engine(fleet: Cluster) -> None:
    def cancelled() -> list[str]:
        return [line for line in fleet.utterances() if "cancelled" in line]

    before = len(cancelled())
    gone = Listener(fleet, LONG)
    wait_until(lambda: gone.first_s, "it is heard")
    gone.leave()
    gone.done()
    wait_until(lambda: len(cancelled()) > before, "the utterance is cancelled")
    print(f"\nfree {time.time() - gone.left_at:.2f} s after the client left")
    # The whole would have been 20 minutes of sound.
    (spoken,) = re.findall(r"([\d.]+) s of audio", cancelled()[-1]) or ["0"]
    assert float(spoken) < 600


def test_more_than_it_can_do_is_refused_as_openai_does(fleet: Cluster) -> None:
    """Two replicas speak one each and let three each wait."""
    crowd = [Listener(fleet, LONG) for _ in range(16)]
    wait_until(lambda: sum(one.status == 503 for one in crowd) >= 8, "eight are refused")
    for one in crowd:
        one.leave()
    for one in crowd:
        one.done()
    refused = [one for one in crowd if one.status == 503]
    assert all(is_refusal(one.status, one.headers, one.content) for one in refused)
    assert {one.status for one in crowd} == {200, 503}
    assert len(refused) <= 14, "each replica has spoken at least once"


def test_every_replica_tells_its_metrics(fleet: Cluster) -> None:
    for _ in range(8):
        assert Listener(fleet, "Hello.").done().status == 200

    def replicas(name: str) -> set[str]:
        lines = [line for line in fleet.metrics() if line.startswith(name + "{")]
        return {found for line in lines for found in re.findall(r'replica="(\w+)"', line)}

    wait_until(lambda: len(replicas("ray_phonate_build_info")) >= 2, "both tell what they are")
    wait_until(lambda: replicas("ray_phonate_utterances_total"), "utterances are counted")
    wait_until(
        lambda: replicas("ray_phonate_first_audio_seconds_bucket"), "histograms have buckets"
    )


def two_are_heard(streams: list[Listener]) -> bool:
    def heard() -> list[Listener]:
        return [one for one in streams if one.first_s and one.is_alive()]

    before = heard()
    time.sleep(0.5)
    return len(before) == 2 and heard() == before


async def test_a_replica_that_is_killed_takes_only_its_own_with_it(fleet: Cluster) -> None:
    before = fleet.wait_for_replicas()
    gone = min(before)
    async with contextlib.AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(session(fleet)) for _ in range(6)]
        # A replica speaks one at a time, so two that are heard for a while are on both.
        streams = [Listener(fleet, SENTENCE * 80) for _ in range(4)]
        await asyncio.to_thread(wait_until, lambda: two_are_heard(streams), "both replicas speak")
        killed = time.monotonic()
        os.kill(gone, signal.SIGKILL)
        with Load(fleet) as load:
            await asyncio.to_thread(fleet.wait_for_replicas, frozenset({gone}))
            replaced_s = time.monotonic() - killed
            n = len(load.results)
            await asyncio.to_thread(wait_until, lambda: len(load.results) > n + 3, "it goes on")
        for stream in streams:
            await asyncio.to_thread(stream.done)
        for ws in sessions:
            with contextlib.suppress(websockets.ConnectionClosed):
                await say(ws, "Hello there. ")
                await end(ws)
        ends = await asyncio.gather(*map(rest_of, sessions))
    statuses = load.statuses(killed)
    cut = [s for s in streams if s.error]
    waited = [s for s in streams if s.status != 200]
    lost = [code for _, _, code in ends if code == 1012]
    print(
        f"\nreplaced after {replaced_s:.1f} s; new requests: {dict(statuses)}; "
        f"{len(cut)} of 4 streams cut, {len(waited)} refused; {len(lost)} of 6 sessions cut"
    )
    assert len(cut) == 1, "what the other replica speaks goes on"
    assert all(is_refusal(s.status, s.headers, s.content) for s in waited)
    assert len(waited) <= 2
    whole = [s for s in streams if s.status == 200 and not s.error]
    assert len({len(s.content) for s in whole}) == 1, "the same text and seed, all of it"
    assert set(statuses) <= {200, 503}, load.results
    assert statuses[200] > statuses[503]
    assert 0 < len(lost) < 6
    for events, _, code in ends:
        assert (code == 1000) == ("done" in events), "a lost session never looks whole"


async def test_a_redeploy_cuts_nobody(fleet: Cluster) -> None:
    before = frozenset(fleet.wait_for_replicas())
    stream = Listener(fleet, SENTENCE * 60)
    await asyncio.to_thread(wait_until, lambda: stream.first_s, "it is heard")
    async with session(fleet) as ws:
        await say(ws, "Hello there. ")
        with Load(fleet) as load:
            await asyncio.to_thread(wait_until, lambda: load.results, "the load runs")
            began = time.monotonic()
            await asyncio.to_thread(fleet.deploy, max_voices=999)
            await asyncio.to_thread(fleet.wait_for_replicas, before)
            events, _, code = await rest_of(ws)
            seconds = time.monotonic() - began
    stream.done()
    print(f"\nredeployed in {seconds:.1f} s under load: {dict(load.statuses())}")
    assert set(load.statuses()) == {200}, load.results
    assert stream.error is None
    assert len(stream.content) > 120 * 48_000
    assert "draining" in events
    assert code == 1012
