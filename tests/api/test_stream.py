"""The WebSocket over a real socket: what only a socket, a clock and an engine thread can show."""

from __future__ import annotations

import asyncio
import base64
import threading
import time
from urllib.parse import quote

import httpx
import numpy as np
import pytest
import websockets
from stream_client import session
from support import running

from phonate.engine.scripted import Emit, Fail, Hang, ScriptedEngine, Wait, duration_of
from phonate.errors import EngineFailure

pytestmark = pytest.mark.timeout(30)

FIRST = "This is the first sentence. "
SECOND = "And this is the second one. "
LONG = "This one takes a long while."


def slow(seconds: float = 60.0) -> list[Emit]:
    """Real time, a frame every 80 ms."""
    return [Emit.tone(seconds, pace_s=0.02)]


async def idle(server: object, within_s: float = 2.0) -> bool:
    """Whether slot and engine are free within that time."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if not server.service.admission.active and not server.engine.in_flight:
            return True
        await asyncio.sleep(0.005)
    return False


# Speaking -----------------------------------------------------------------------------------------


async def test_from_text_to_done(scripted) -> None:
    async with session(scripted, config={"voice": "tone"}) as c:
        for piece in ("This is the fir", "st sentence. And this", " is the second one. "):
            await c.send("text", text=piece)
        await c.send("end")
        assert await c.rest() == (1000, "done")
    done = c.of("fragment_done")
    assert [e["text"] for e in done] == [FIRST, SECOND]
    assert c.types[:3] == ["fragment_ready", "first_pcm_ready", "pcm"]
    total_ms = len(c.pcm) / 48
    assert c.events[-1]["spoken_ms"] == round(total_ms)
    assert c.events[-1]["spoken_chars"] == len(FIRST + SECOND)
    gap = done[1]["start_ms"] - done[0]["end_ms"]
    assert gap == 300
    samples = np.frombuffer(c.pcm, "<i2")
    silence = samples[done[0]["end_ms"] * 24 : done[1]["start_ms"] * 24]
    assert not silence.any()
    assert abs(done[0]["end_ms"] / 1000 - duration_of(FIRST.strip())) < 0.1
    assert {e["session_id"] for e in c.events} == {c.events[0]["session_id"]}


async def test_audio_does_not_depend_on_how_the_text_is_cut(scripted) -> None:
    heard = []
    for pieces in ([FIRST + SECOND], list(FIRST + SECOND)):
        async with session(scripted, config={"seed": 7}) as c:
            for piece in pieces:
                await c.send("text", text=piece)
            await c.send("end")
            await c.rest()
            heard.append(c.pcm)
    assert heard[0] == heard[1]
    assert len(heard[0]) > 48_000


async def test_ready_tells_voice_and_seed(scripted) -> None:
    async with session(scripted) as c:
        await c.send("config", voice="alloy")
        ready = await c.until("ready")
        assert ready["voice"] == "tone"
        assert isinstance(ready["seed"], int)


async def test_speed(scripted) -> None:
    lengths = []
    for speed in (1, 2):
        async with session(scripted, config={"speed": speed}) as c:
            await c.send("text", text=FIRST)
            await c.send("end")
            await c.rest()
            lengths.append(len(c.pcm))
    assert lengths[0] / lengths[1] == pytest.approx(2, rel=0.1)


async def test_the_engine_works_ahead_of_a_slow_reader() -> None:
    with running(ScriptedEngine()) as server:
        async with session(server, config={}) as c:
            await c.send("text", text=FIRST + SECOND)
            await c.send("end")
            assert await asyncio.to_thread(server.engine.wait_for_calls, 2)
            assert await idle(server)
            await c.rest()
        assert [e["text"] for e in c.of("fragment_done")] == [FIRST, SECOND]


async def test_a_failing_fragment_is_a_warning() -> None:
    engine = ScriptedEngine({FIRST.strip(): [Fail(EngineFailure("It broke."))]})
    with running(engine) as server:
        async with session(server, config={}) as c:
            await c.send("text", text=FIRST + SECOND)
            await c.send("end")
            assert await c.rest() == (1000, "done")
        assert "It broke." in c.of("warning")[0]["message"]
        assert [e["finish_reason"] for e in c.of("fragment_done")] == ["error", "stop"]
        assert server.service.health().synthesis_failures_total == 1


async def test_a_silent_fragment_is_a_warning_and_health_stays_good() -> None:
    engine = ScriptedEngine({FIRST.strip(): [Emit.silence(1.0)]})
    with running(engine) as server:
        async with session(server, config={}) as c:
            await c.send("text", text=FIRST + SECOND)
            await c.send("end")
            await c.rest()
        assert [e["finish_reason"] for e in c.of("fragment_done")] == ["silent", "stop"]
        assert c.of("fragment_done")[1]["start_ms"] == 0
        assert server.service.health().ok


async def test_a_crash_of_the_engine_is_a_warning_without_its_words() -> None:
    engine = ScriptedEngine({FIRST.strip(): [Fail(KeyError("secret path"))]})
    with running(engine) as server:
        async with session(server, config={}) as c:
            await c.send("text", text=FIRST)
            await c.send("end")
            assert await c.rest() == (1000, "done")
        assert "secret" not in c.of("warning")[0]["message"]


async def test_each_fragment_goes_to_the_voice_of_its_language() -> None:
    with running(ScriptedEngine(), voice_language_route=["tone:de=ton"]) as server:
        async with session(server, config={"voice": "tone"}) as c:
            await c.send("text", text="This is surely a sentence in the English language. ")
            await c.send("text", text="Und das hier ist ganz sicher ein Satz auf Deutsch. ")
            await c.send("text", text="Na dann, hm hm. ")
            await c.send("end")
            assert await c.rest() == (1000, "done")
        assert [call.request.speaker for call in server.engine.calls] == ["tone", "ton", "ton"]
        assert [e["language"] for e in c.of("fragment_ready")] == ["english", "german", "german"]
        assert [e["voice"] for e in c.of("fragment_ready")] == ["tone", "ton", "ton"]


async def test_a_language_that_was_asked_for_is_not_identified() -> None:
    with running(ScriptedEngine(), voice_language_route=["tone:de=ton"]) as server:
        async with session(server, config={"voice": "tone", "language": "de"}) as c:
            await c.send("text", text="This is surely a sentence in the English language. ")
            await c.send("end")
            await c.rest()
        assert [call.request.speaker for call in server.engine.calls] == ["ton"]
        assert server.engine.calls[0].request.language == "german"


# Control ------------------------------------------------------------------------------------------


async def test_pause_stands_still_and_resume_goes_on() -> None:
    with running(ScriptedEngine({LONG: slow()})) as server:
        async with session(server, config={}) as c:
            await c.send("text", text=LONG)
            await c.send("flush")
            await c.until_pcm(3)
            asked = time.monotonic()
            await c.send("pause")
            await c.until("paused")
            assert time.monotonic() - asked < 0.35
            made = server.engine.calls[0].n_samples
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(c.get(), 0.3)
            assert server.engine.calls[0].n_samples == made
            assert server.service.health().ok
            await c.send("resume")
            await c.until("resumed")
            await c.until_pcm(3)
            assert server.engine.calls[0].n_samples > made
            await c.send("cancel")
            assert await c.rest() == (1000, "cancelled")
        assert await idle(server)


async def test_a_paused_session_gives_its_slot_to_others_and_goes_on_seamlessly() -> None:
    text = "This is said in two goes."
    engine = ScriptedEngine({text: [Emit.tone(1.2, hz=330, pace_s=0.01)]})
    with running(engine) as server:
        async with session(server, config={"seed": 5}) as c:
            await c.send("text", text=text)
            await c.send("flush")
            await c.until_pcm(4)
            await c.send("pause")
            await c.until("paused")
            async with httpx.AsyncClient() as http:
                asked = time.monotonic()
                answer = await http.post(
                    f"{server.address}/v1/audio/speech",
                    json={"input": "Others speak meanwhile.", "response_format": "pcm"},
                )
            assert answer.status_code == 200
            assert time.monotonic() - asked < 1.5
            await c.send("resume")
            await c.send("end")
            assert (await c.rest())[0] == 1000
        assert [call.request.text for call in engine.calls] == [
            text, "Others speak meanwhile.", text,
        ]  # fmt: skip
        assert engine.calls[0].request.seed == engine.calls[2].request.seed == 5

        async with session(server, config={"seed": 5}) as whole:
            await whole.send("text", text=text)
            await whole.send("end")
            await whole.rest()
        assert c.pcm == whole.pcm


async def test_a_paused_session_is_cancelled_after_its_time() -> None:
    with running(ScriptedEngine({LONG: slow()}), pause_timeout=0.3) as server:
        async with session(server, config={}) as c:
            await c.send("text", text=LONG)
            await c.send("flush")
            await c.until_pcm()
            await c.send("pause")
            assert await c.rest() == (1000, "pause_timeout")
            assert c.events[-1]["reason"] == "pause_timeout"
        assert await idle(server)


async def test_cancel_then_reuse_is_as_fresh() -> None:
    with running(ScriptedEngine({LONG: slow()})) as server:
        async with session(server, config={"seed": 3}) as c:
            await c.send("text", text=LONG)
            await c.send("flush")
            await c.until_pcm(2)
            asked = time.monotonic()
            await c.send("cancel", keep_session=True)
            await c.until("cancelled")
            assert time.monotonic() - asked < 0.28
            c.out.clear()
            await c.send("text", text=FIRST)
            await c.send("end")
            await c.rest()
        async with session(server, config={"seed": 3}) as fresh:
            await fresh.send("text", text=FIRST)
            await fresh.send("end")
            await fresh.rest()
        assert c.pcm == fresh.pcm
        assert server.engine.calls[0].cancelled


async def test_cancel_while_queued_behind_somebody_else() -> None:
    release = threading.Event()
    with running(ScriptedEngine({LONG: [Hang(release)]})) as server:
        one = session(server, config={"seed": 1})
        async with one as holder, session(server, config={}) as c:
            await holder.send("text", text=LONG)
            await holder.send("flush")
            assert await asyncio.to_thread(server.engine.wait_for_calls, 1)
            await c.send("text", text=FIRST)
            await c.until("fragment_ready")
            await c.send("cancel")
            assert (await c.rest())[0] == 1000
            assert server.service.admission.queued == 0
            release.set()
            await holder.send("cancel")
            await holder.rest()
        assert await idle(server)
        assert len(server.engine.calls) == 1


async def test_skip_segment() -> None:
    with running(ScriptedEngine({LONG: slow()})) as server:
        async with session(server, config={}) as c:
            for n, text in ((1, LONG), (2, FIRST)):
                await c.send("segment_start", segment_id=n)
                await c.send("text", text=text)
                await c.send("flush", segment_id=n)
            await c.until_pcm(2)
            await c.send("skip_segment", segment_id=1)
            await c.send("end")
            assert await c.rest() == (1000, "done")
        assert [(e["segment_id"], e["skipped"]) for e in c.of("segment_done")] == [
            (1, True), (2, False),
        ]  # fmt: skip
        assert c.events[-1]["spoken_ms"] == round(len(c.pcm) / 48)


async def test_a_full_queue_is_1013() -> None:
    with running(ScriptedEngine({LONG: slow()}), max_queued_requests=0) as server:
        async with session(server, config={}) as first, session(server, config={}) as c:
            await first.send("text", text=LONG)
            await first.send("flush")
            await first.until_pcm()
            await c.send("text", text=FIRST)
            assert (await c.rest())[0] == 1013
            assert c.events[-1]["error"]["type"] == "server_busy"
            assert c.events[-1]["retry_after_s"] >= 1
            await first.send("cancel")
            await first.rest()


async def test_a_synthesis_that_hangs_is_given_up() -> None:
    release = threading.Event()
    with running(ScriptedEngine({LONG: [Hang(release)]}), synthesis_timeout=0.3) as server:
        async with session(server, config={}) as c:
            await c.send("text", text=LONG)
            await c.send("flush")
            code, _ = await c.rest()
            assert code == 1013
            assert c.events[-1]["error"]["type"] == "timeout_error"
        assert server.service.admission.active == 1
        release.set()
        assert await idle(server)


async def test_standing_still_does_not_count_as_synthesis_time() -> None:
    script = {LONG: [Emit.tone(0.24, pace_s=0.05), Wait(0.05), Emit.tone(0.24)]}
    with running(ScriptedEngine(script), synthesis_timeout=0.8) as server:
        async with session(server, config={}) as c:
            await c.send("text", text=LONG)
            await c.send("flush")
            await c.until_pcm()
            await c.send("pause")
            await c.until("paused")
            await asyncio.sleep(1.2)
            await c.send("resume")
            await c.send("end")
            assert await c.rest() == (1000, "done")


# Clients that leave or do not read ----------------------------------------------------------------


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_a_client_that_leaves_stops_its_synthesis(how: str) -> None:
    with running(ScriptedEngine({LONG: slow()})) as server:
        async with session(server, config={}) as c:
            await c.send("text", text=LONG)
            await c.send("flush")
            await c.until_pcm()
            if how == "close":
                await c.socket.close()
            else:
                c.socket.transport.abort()
            assert await idle(server, 1.0)
        assert server.engine.calls[0].cancelled


async def test_a_client_that_leaves_while_paused() -> None:
    with running(ScriptedEngine({LONG: slow()})) as server:
        async with session(server, config={}) as c:
            await c.send("text", text=LONG)
            await c.send("flush")
            await c.until_pcm()
            await c.send("pause")
            await c.until("paused")
            c.socket.transport.abort()
            assert await idle(server, 1.0)


async def test_a_client_that_does_not_read_is_closed_and_others_are_served() -> None:
    endless = ScriptedEngine({LONG: [Emit.tone(float("inf"))]})
    with running(endless, send_timeout=1.0, stream_buffer_seconds=1.0) as server:
        async with session(server, config={}, max_queue=1) as c:
            await c.send("text", text=LONG)
            await c.send("flush")
            c.socket.transport.pause_reading()
            async with session(server, config={}) as other:
                await other.send("text", text=FIRST)
                await other.send("end")
                assert await asyncio.wait_for(other.rest(), 10) == (1000, "done")
            for _ in range(100):
                await asyncio.sleep(0.1)
                if not server.app.state.phonate.sessions:
                    break
            assert not server.app.state.phonate.sessions
            assert await idle(server)
            c.socket.transport.abort()


async def test_an_idle_session_is_closed() -> None:
    with running(ScriptedEngine(), session_idle_timeout=0.3) as server:
        async with session(server, config={}) as c:
            assert await c.rest() == (1008, "idle_timeout")


async def test_a_server_that_stops_closes_its_sessions() -> None:
    with running(ScriptedEngine({LONG: slow()})) as server:
        async with session(server, config={}) as c, session(server, config={}) as paused:
            await c.send("text", text=LONG)
            await c.send("flush")
            await c.until_pcm()
            await paused.send("pause")
            await paused.until("paused")
            asked = time.monotonic()
            server.server.should_exit = True
            for client in (c, paused):
                assert (await client.rest())[0] in (1012, 1013)
            assert time.monotonic() - asked < 5
    assert server.engine.calls[0].cancelled
    assert server.engine.closed


# The handshake ------------------------------------------------------------------------------------

KEY = "s3cret-ключ"


def encoded(key: str) -> str:
    return "bearer." + base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


async def test_without_the_key_401_before_accept() -> None:
    with running(ScriptedEngine(), api_key=KEY) as server:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer "}):
            with pytest.raises(websockets.InvalidStatus) as caught:
                async with session(server, headers=headers):
                    pass
            assert caught.value.response.status_code == 401
            assert "X-Request-ID" in caught.value.response.headers


async def test_three_ways_to_send_the_key() -> None:
    with running(ScriptedEngine(), api_key="plain") as server:
        ways = [
            {"headers": {"Authorization": "Bearer plain"}},
            {"subprotocols": [encoded("plain")]},
            {"query": "?api_key=plain"},
        ]
        for way in ways:
            async with session(server, config={}, **way) as c:
                await c.send("end")
                assert await c.rest() == (1000, "done")


async def test_a_key_in_another_script() -> None:
    with running(ScriptedEngine(), api_key=KEY) as server:
        for way in ({"subprotocols": [encoded(KEY)]}, {"query": f"?api_key={quote(KEY)}"}):
            async with session(server, config={}, **way):
                pass
        for wrong in ("%FF%FE", "%D0", "", "%00"):
            with pytest.raises(websockets.InvalidStatus) as caught:
                async with session(server, query=f"?api_key={wrong}"):
                    pass
            assert caught.value.response.status_code == 401


async def test_a_subprotocol_that_is_no_key_is_preferred_in_the_answer() -> None:
    with running(ScriptedEngine(), api_key=KEY) as server:
        async with session(server, subprotocols=[encoded(KEY), "phonate"]) as c:
            assert c.socket.subprotocol == "phonate"
        async with session(server, subprotocols=[encoded(KEY)]) as c:
            assert c.socket.subprotocol == encoded(KEY)


async def test_a_loopback_origin_is_allowed(scripted) -> None:
    async with session(scripted, config={}, headers={"Origin": "http://localhost:3000"}):
        pass


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
async def test_another_origin_is_refused_before_accept(scripted, origin: str) -> None:
    with pytest.raises(websockets.InvalidStatus) as caught:
        async with session(scripted, headers={"Origin": origin}):
            pass
    assert caught.value.response.status_code == 403


@pytest.mark.parametrize(("wanted", "taken"), [("mine.1", True), ("not well formed", False)])
async def test_the_session_id_header(scripted, wanted: str, taken: bool) -> None:
    async with session(scripted, headers={"X-Session-ID": wanted}) as c:
        await c.send("config")
        ready = await c.until("ready")
        assert (ready["session_id"] == wanted) is taken


async def test_the_request_id_is_that_of_the_handshake(scripted) -> None:
    async with session(scripted, headers={"X-Request-ID": "req-7"}) as c:
        await c.send("config")
        assert (await c.until("ready"))["request_id"] == "req-7"
        assert c.socket.response.headers["X-Request-ID"] == "req-7"


async def test_too_many_sessions_are_503_before_accept() -> None:
    with running(ScriptedEngine(), max_sessions=1) as server:
        async with session(server, config={}):
            with pytest.raises(websockets.InvalidStatus) as caught:
                async with session(server):
                    pass
            assert caught.value.response.status_code == 503
            assert "Retry-After" in caught.value.response.headers
        for _ in range(100):
            if not server.app.state.phonate.sessions:
                break
            await asyncio.sleep(0.02)
        async with session(server, config={}):
            pass


# Errors -------------------------------------------------------------------------------------------


async def test_an_unknown_voice_names_the_others(scripted) -> None:
    async with session(scripted) as c:
        await c.send("config", voice="nobody")
        assert (await c.rest())[0] == 1008
        error = c.events[-1]["error"]
        assert error["param"] == "voice"
        assert "tone" in error["message"]


async def test_a_control_the_engine_lacks_is_refused(scripted) -> None:
    async with session(scripted) as c:
        await c.send("config", temperature=0.5)
        assert (await c.rest())[0] == 1008
        assert c.events[-1]["error"]["param"] == "temperature"


@pytest.mark.parametrize("frame", ["nonsense", b"\0\1", '{"type":"shout"}', "x" * 70_000])
async def test_a_bad_frame_is_1008(scripted, frame: str | bytes) -> None:
    async with session(scripted, config={}) as c:
        await c.socket.send(frame)
        assert (await c.rest())[0] == 1008
        assert c.events[-1]["type"] == "error"


async def test_one_session_gets_nothing_of_another() -> None:
    with running(ScriptedEngine(), max_batch=4) as server:

        async def one(n: int) -> None:
            text = f"This is what session number {n} says. "
            async with session(server, config={"session_id": f"n{n}", "seed": n}) as c:
                await c.send("text", text=text)
                await c.send("end")
                await c.rest()
                assert {e["session_id"] for e in c.events} == {f"n{n}"}
                assert [e["text"] for e in c.of("fragment_done")] == [text]

        await asyncio.gather(*(one(n) for n in range(8)))


# vLLM-Omni's address ------------------------------------------------------------------------------


async def test_vllm_omnis_events(scripted) -> None:
    async with session(scripted, path="/v1/audio/speech/stream") as c:
        await c.send("session.config", voice="tone", stream_audio=True)
        for n in range(2):
            await c.send("input.text", text=FIRST)
            await c.send("input.done")
            done = await c.until("session.done")
            assert done == {"type": "session.done", "utterance_index": n, "total_sentences": 1}
        await c.send("session.config", voice="nobody")
        assert "tone" in (await c.until("error"))["message"]
        await c.send("session.close")
        assert await c.rest() == (1000, "done")
    assert c.types == ["audio.start", "pcm", "audio.done", "session.done"] * 2 + ["error"]
    assert sum(e["total_bytes"] for e in c.of("audio.done")) == len(c.pcm)
