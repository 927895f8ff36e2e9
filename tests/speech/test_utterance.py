"""One utterance against the scripted engine, without HTTP."""

import asyncio
import threading
from dataclasses import replace

import numpy as np
import pytest

from phonate.engine.scripted import (
    DEFAULT_INFO,
    Emit,
    Fail,
    Hang,
    ScriptedEngine,
    Wait,
    duration_of,
)
from phonate.errors import Cancelled, NotReady, OutputError, Timeout, UnsupportedLanguage
from phonate.speech.request import SpeechRequest
from phonate.speech.service import Limits, SpeechService
from phonate.speech.shaping import SoundOptions

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
SAMPLING = replace(DEFAULT_INFO, takes_sampling=True)


def service(script=None, info=DEFAULT_INFO, **limits):
    return SpeechService(ScriptedEngine(script, info), Limits(**limits), SoundOptions())


def request(text="Hello there.", **changes):
    return SpeechRequest(text=text, voice="tone", speaker="tone", **changes)


async def hear(utterance):
    blocks = [block async for block in utterance.blocks()]
    return np.concatenate(blocks) if blocks else np.zeros(0, np.int16)


async def test_whole_and_streamed_are_the_same_samples():
    speech = service(info=replace(DEFAULT_INFO, max_text_chars=40))
    text = "The first sentence is here. And the second one follows it. Then the last."
    streamed = await hear(speech.speak(request(text, seed=1)))
    whole = await hear(speech.speak(request(text, seed=1, whole=True)))
    assert np.array_equal(streamed, whole)
    assert len(streamed) > 24000 * 2


async def test_pauses_stand_between_sentences_and_not_after_the_last():
    speech = service(info=replace(DEFAULT_INFO, max_text_chars=30))
    text = "The first sentence is here. And this is the second one."
    utterance = speech.speak(request(text))
    samples = await hear(utterance)
    spoken = sum(duration_of(call.request.text) for call in speech.engine.calls)
    assert len(speech.engine.calls) == 2
    assert len(samples) / 24000 == pytest.approx(spoken + 0.3, abs=0.03)
    quiet = np.abs(samples.astype(int)) < 10
    runs = np.diff(np.flatnonzero(np.diff(np.concatenate(([0], quiet, [0])))))[::2]
    assert runs.max() == pytest.approx(0.3 * 24000, rel=0.1)


async def test_no_click_at_a_seam():
    speech = service(info=replace(DEFAULT_INFO, max_text_chars=40))
    text = "This one goes on for quite some time. " * 4
    samples = (await hear(speech.speak(request(text)))).astype(int)
    steps = np.abs(np.diff(samples))
    # The steepest step of a tone is inside it; a seam that is cut hard would be several times that.
    one = await hear(speech.speak(request("This one goes on for quite some time.")))
    assert steps.max() <= np.abs(np.diff(one.astype(int))).max() * 1.05


async def test_a_silent_start_is_tried_once_more_with_another_seed():
    seeds = []

    def script(asked):
        seeds.append(asked.seed)
        return [Emit.silence(1)] if len(seeds) == 1 else None

    utterance = service(script).speak(request())
    assert len(await hear(utterance)) > 0
    assert len(set(seeds)) == 2
    assert utterance.seed == seeds[1]


async def test_a_seed_of_the_clients_is_never_changed():
    speech = service(lambda asked: [Emit.silence(1)])
    with pytest.raises(OutputError):
        await hear(speech.speak(request(seed=3)))
    assert [call.request.seed for call in speech.engine.calls] == [3]


async def test_two_silent_tries_are_an_error():
    speech = service(lambda asked: [Emit.silence(1)])
    with pytest.raises(OutputError):
        await hear(speech.speak(request()))
    assert len(speech.engine.calls) == 2
    assert speech.health().unusable_outputs_total == 1


async def test_one_silent_fragment_among_others_is_passed_over():
    def script(asked):
        return [Emit.silence(0.5)] if "silent" in asked.text else None

    speech = service(script, replace(DEFAULT_INFO, max_text_chars=30))
    text = "The first sentence is here. This is the silent one. And this is the last one."
    assert len(await hear(speech.speak(request(text)))) > 24000


@pytest.mark.parametrize("text", ["1次", "1。", "Huh?", "Hm.", "OK"])
async def test_a_model_that_never_stops_is_bounded_by_the_text(text):
    speech = service(lambda asked: [Emit.tone(float("inf"))], SAMPLING)
    utterance = speech.speak(request(text))
    samples = await hear(utterance)
    assert len(samples) / 24000 < 3
    assert utterance.finish_reason == "length"


async def test_a_whole_answer_over_its_budget_is_tried_once_more():
    count = []

    def script(asked):
        count.append(asked.seed)
        return [Emit.tone(float("inf"))] if len(count) == 1 else [Emit.tone(0.8)]

    utterance = service(script, SAMPLING).speak(request(whole=True))
    samples = await hear(utterance)
    assert len(samples) == pytest.approx(0.8 * 24000, abs=400)
    assert (len(count), utterance.finish_reason) == (2, "stop")


async def test_endless_silence_after_speech_ends_the_utterance():
    steps = [Emit.tone(1), Emit.silence(float("inf"))]
    text = "A text that is long enough for a budget of well over ten seconds of speech, really."
    speech = service(lambda asked: steps, SAMPLING)
    utterance = speech.speak(request(text, seed=1))
    samples = await hear(utterance)
    assert len(samples) / 24000 < 9
    assert utterance.finish_reason == "length"
    assert speech.engine.calls[0].sink_refused


async def test_a_loop_ends_the_utterance_unless_the_text_is_one():
    rng = np.random.default_rng(0)
    word = np.concatenate([
        np.sin(np.arange(4800) * rng.uniform(0.03, 0.8)) * 0.3 for _ in range(5)
    ]).astype(np.float32)  # fmt: skip
    steps = [Emit(samples=np.tile(word, 40))]
    plain = " ".join(f"Sentence {word} says something new." for word in WORDS)
    speech = service(lambda asked: steps, SAMPLING)
    stuck = speech.speak(request(plain, seed=1))
    n_stuck = len(await hear(stuck))
    assert stuck.finish_reason == "length"
    asked_for = speech.speak(request("Very, " * 60 + "good.", seed=1))
    assert len(await hear(asked_for)) > n_stuck * 1.5


async def test_the_clients_own_token_limit_counts_over_all_fragments():
    speech = service(info=replace(SAMPLING, max_text_chars=30))
    text = "The first sentence is here. And this is the second one."
    utterance = speech.speak(request(text, max_new_tokens=30))
    await hear(utterance)
    assert utterance.n_frames <= 30
    assert utterance.finish_reason == "length"


async def test_cancelling_frees_the_slot_when_the_engine_is_done_and_not_before():
    hang = Hang(threading.Event())
    speech = service({"x": [hang]})
    utterance = speech.speak(request("x"))
    await asyncio.to_thread(hang.reached.wait, 2)
    utterance.cancel("client_gone")
    with pytest.raises(Cancelled):
        await hear(utterance)
    assert speech.admission.active == 1
    assert speech.health().active_requests == 1
    hang.until.set()
    for _ in range(100):
        await asyncio.sleep(0.01)
        if not speech.admission.active:
            break
    assert speech.admission.active == 0


async def test_cancelled_before_its_first_turn():
    speech = service()
    utterance = speech.speak(request())
    utterance.cancel("client_gone")
    with pytest.raises(Cancelled):
        await asyncio.wait_for(hear(utterance), 1)
    assert speech.engine.calls == []
    assert speech.admission.active == 0


async def test_cancelled_in_the_queue():
    speech = service({"first": [Wait(0.3), Emit.tone(0.5)]})
    first = speech.speak(request("first"))
    second = speech.speak(request("second"))
    await asyncio.sleep(0.05)
    assert speech.health().queued_requests == 1
    second.cancel("client_gone")
    with pytest.raises(Cancelled):
        await hear(second)
    await hear(first)
    assert speech.engine.texts == ["first"]
    assert (speech.admission.active, speech.admission.queued) == (0, 0)


async def test_a_reader_that_lags_far_behind_lends_its_slot_to_others():
    info = replace(DEFAULT_INFO, max_text_chars=30)
    speech = service(lambda asked: [Emit.tone(70)] if "lag" in asked.text else None, info)
    slow = speech.speak(request("This sentence lags a lot. This one lags as well."))
    for _ in range(500):
        await asyncio.sleep(0.01)
        if not speech.admission.active:
            break
    assert len(speech.engine.calls) == 1
    assert len(await hear(speech.speak(request("quick")))) > 0
    assert len(await hear(slow)) / 24000 == pytest.approx(140.3, abs=0.1)


async def test_a_hung_engine_is_a_timeout_and_shows_in_health():
    hang = Hang(threading.Event())
    speech = service({"x": [hang]}, synthesis_timeout_s=0.1, stall_timeout_s=0.05)
    with pytest.raises(Timeout):
        await hear(speech.speak(request("x")))
    await asyncio.sleep(0.05)
    health = speech.health()
    assert not health.ok
    assert health.stalled
    assert health.active_requests == 1
    hang.until.set()


async def test_draining_lets_running_work_finish_and_takes_no_more():
    speech = service({"x": [Wait(0.1), Emit.tone(0.5)]})
    running = speech.speak(request("x"))
    await asyncio.sleep(0.02)
    draining = asyncio.ensure_future(speech.drain(5))
    await asyncio.sleep(0.02)
    with pytest.raises(NotReady):
        await hear(speech.speak(request("late")))
    assert len(await hear(running)) > 0
    await draining
    await speech.close()
    assert speech.engine.closed


async def test_closing_does_not_free_an_engine_that_is_still_busy():
    hang = Hang(threading.Event())
    speech = service({"x": [hang]})
    utterance = speech.speak(request("x"))
    await asyncio.to_thread(hang.reached.wait, 2)
    await speech.close(timeout_s=0.1)
    assert not speech.engine.closed
    with pytest.raises(Cancelled):
        await hear(utterance)
    hang.until.set()


async def test_a_part_that_cannot_be_spoken_does_not_cut_the_others():
    def script(asked):
        refused = UnsupportedLanguage("no", param="input")
        return [Fail(refused)] if "foreign" in asked.text else None

    speech = service(script, replace(DEFAULT_INFO, max_text_chars=30))
    text = "This one is all foreign text. The second sentence is here. And the last one."
    utterance = speech.speak(request(text))
    assert len(await hear(utterance)) > 24000
    assert utterance.error is None
    with pytest.raises(UnsupportedLanguage):
        await hear(speech.speak(request("This one is all foreign text.")))
