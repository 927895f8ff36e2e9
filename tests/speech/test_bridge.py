import asyncio
import threading
import time

import numpy as np
import pytest

from phonate.audio.pcm import NO_PCM, to_pcm
from phonate.engine.base import CancelToken, SynthesisRequest
from phonate.engine.scripted import Emit, Fail, Hang, ScriptedEngine
from phonate.errors import EngineFailure
from phonate.speech.bridge import Synthesis


class Plain:
    """No shaping: float to int16, and a mark at the end."""

    enough = False

    def feed(self, samples):
        return to_pcm(samples)

    def finish(self):
        return np.array([7], np.int16)


def synthesis(engine, text="Hello there.", token=None, on_done=lambda: None):
    request = SynthesisRequest(text, speaker="tone")
    return Synthesis(engine, request, Plain(), token or CancelToken(), on_done)


async def collect(synth):
    blocks = [block async for block in synth.blocks()]
    return np.concatenate(blocks) if blocks else NO_PCM


async def test_everything_arrives_in_order_and_then_the_result():
    synth = synthesis(ScriptedEngine())
    synth.start()
    heard = await collect(synth)
    assert heard[-1] == 7
    assert len(heard) == synth.samples_made + 1
    assert synth.result is not None
    assert synth.result.finish_reason == "stop"
    assert synth.ended
    assert synth.first_chunk_s is not None


async def test_what_the_engine_raises_comes_after_what_it_made():
    engine = ScriptedEngine({"x": [Emit.tone(0.16), Fail(EngineFailure("boom"))]})
    synth = synthesis(engine, "x")
    synth.start()
    blocks = synth.blocks()
    heard = [await blocks.__anext__(), await blocks.__anext__()]
    with pytest.raises(EngineFailure, match="boom"):
        await blocks.__anext__()
    assert sum(map(len, heard)) == round(0.16 * 24000)


async def test_a_set_token_stops_the_engine_within_a_frame_and_tells_when_it_is_done():
    done = asyncio.Event()
    engine = ScriptedEngine({"x": [Emit.tone(float("inf"), pace_s=0.005)]})
    synth = synthesis(engine, "x", on_done=done.set)
    synth.start()
    blocks = synth.blocks()
    await blocks.__anext__()
    synth.token.set("client_gone")
    await asyncio.wait_for(done.wait(), 2)
    assert engine.calls[0].cancelled
    assert synth.ended


async def test_pause_holds_the_engine_and_resume_lets_it_go_on():
    engine = ScriptedEngine({"x": [Emit.tone(0.8, pace_s=0.001)]})
    synth = synthesis(engine, "x")
    synth.start()
    blocks = synth.blocks()
    first = await blocks.__anext__()
    synth.pause()
    await asyncio.wait_for(synth.quiescent(), 2)
    made = engine.calls[0].n_samples
    await asyncio.sleep(0.05)
    assert engine.calls[0].n_samples == made
    assert synth.stalled_for(time.monotonic() + 1000) == 0
    synth.resume()
    rest = [block async for block in blocks]
    assert len(first) + sum(map(len, rest)) == round(0.8 * 24000) + 1


async def test_quick_alternation_of_pause_and_resume_ends_in_what_was_said_last():
    engine = ScriptedEngine({"x": [Emit.tone(0.8, pace_s=0.001)]})
    synth = synthesis(engine, "x")
    synth.start()
    for _ in range(50):
        synth.pause()
        await asyncio.wait_for(synth.quiescent(), 2)
        synth.resume()
        synth.pause()
        await asyncio.wait_for(synth.quiescent(), 2)
        made = engine.calls[0].n_samples
        await asyncio.sleep(0.001)
        assert engine.calls[0].n_samples == made or synth.ended
        synth.resume()
    assert len(await collect(synth)) == round(0.8 * 24000) + 1


async def test_a_late_notice_of_an_earlier_pause_says_nothing_about_this_one():
    synth = synthesis(ScriptedEngine())
    synth.pause()
    synth.resume()
    synth.pause()
    synth._stands_still(1)
    waiting = asyncio.ensure_future(synth.quiescent())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    synth._stands_still(2)
    await asyncio.wait_for(waiting, 1)


async def test_a_paused_engine_can_still_be_cancelled():
    engine = ScriptedEngine({"x": [Emit.tone(float("inf"), pace_s=0.001)]})
    synth = synthesis(engine, "x")
    synth.start()
    synth.pause()
    await asyncio.wait_for(synth.quiescent(), 2)
    synth.token.set("pause_timeout")
    await asyncio.wait_for(synth.wait_ended(), 2)
    assert engine.in_flight == 0


async def test_quiescent_at_once_when_the_engine_is_done():
    synth = synthesis(ScriptedEngine())
    synth.start()
    await synth.wait_ended()
    synth.pause()
    await asyncio.wait_for(synth.quiescent(), 1)


async def test_a_hung_engine_shows_as_stalled_and_does_not_count_as_ended():
    hang = Hang(threading.Event())
    engine = ScriptedEngine({"x": [hang]})
    synth = synthesis(engine, "x")
    synth.start()
    await asyncio.to_thread(hang.reached.wait, 2)
    assert synth.stalled_for(time.monotonic() + 50) >= 50
    assert not synth.ended
    hang.until.set()
    await asyncio.wait_for(synth.wait_ended(), 2)


def test_an_engine_that_outlives_the_loop_ends_quietly():
    hang = Hang(threading.Event())
    engine = ScriptedEngine({"x": [hang, Emit.tone(0.08)]})

    async def start():
        synthesis(engine, "x").start()
        await asyncio.to_thread(hang.reached.wait, 2)

    asyncio.run(start())
    hang.until.set()
    assert engine.wait_until_idle()
