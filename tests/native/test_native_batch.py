"""Lanes of a batch: each is bit for bit the request alone, whoever joins, leaves, waits or fails.

QT_BATCH_SEEDS=1,2,3 tries other schedules; a failure names its seed.
"""

from __future__ import annotations

import os
import random
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import qtlib

SEEDS = [int(s) for s in os.environ.get("QT_BATCH_SEEDS", "20").split(",")]
N_REQUESTS = 200
WIDTH = 8
PREFILL_ROWS = 16  # in a round while others speak (scheduler.cpp)
WORDS = ["hello", "world", "and", "you", "the", "user", "is", "it", "in", "a"]


@dataclass
class Plan:
    """A request of the schedule, and what its caller does to it."""

    fields: dict[str, Any]
    arrives_s: float
    pauses: tuple[int, ...] = ()  # flow calls answered with WAIT
    ends: str = ""  # "cancel", "flow", "chunk": how the caller leaves, or ""
    after: int = 0  # asks until it leaves


def schedule(seed: int, voices: list[dict[str, Any]], n: int = N_REQUESTS) -> list[Plan]:
    """Few different requests, so that what each must be is computed once; any order of them."""
    rng = random.Random(seed)
    menu = [
        {
            "text": " ".join(rng.choices(WORDS, k=rng.randint(1, 12))),
            "seed": i,
            "max_new_tokens": rng.randint(1, 11),
            "text_layout": rng.randint(0, 2),
            "first_chunk_frames": rng.randint(0, 3),
            **rng.choice(voices),
        }
        for i in range(24)
    ]
    plans = []
    for _ in range(n):
        pauses = tuple(rng.sample(range(12), k=rng.choice((0, 0, 1, 5))))
        ends = rng.choice(("", "", "", "cancel", "flow", "chunk"))
        arrives = rng.choice((0.0, rng.random() * 0.5))
        plans.append(Plan(rng.choice(menu), arrives, pauses, ends, rng.randint(1, 6)))
    return plans


def speak(ctx: qtlib.Context, plan: Plan) -> qtlib.Spoken:
    asked = {"flow": 0, "cancel": 0}

    def flow() -> int:
        asked["flow"] += 1
        if plan.ends == "flow" and asked["flow"] > plan.after:
            return 0
        return 2 if asked["flow"] in plan.pauses else 1

    def cancel() -> bool:
        asked["cancel"] += 1
        return plan.ends == "cancel" and asked["cancel"] > plan.after

    def on_chunk(n: int) -> bool:
        return plan.ends != "chunk" or n < plan.after

    return ctx.streamed(on_chunk=on_chunk, cancel=cancel, flow=flow, **plan.fields)


def run_all(ctx: qtlib.Context, plans: list[Plan]) -> list[qtlib.Spoken]:
    results: dict[int, qtlib.Spoken] = {}

    def run(i: int) -> None:
        time.sleep(plans[i].arrives_s)
        results[i] = speak(ctx, plans[i])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(plans))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
        assert not thread.is_alive(), "a request never returned"
    return [results[i] for i in range(len(plans))]


def check(plan: Plan, spoken: qtlib.Spoken, alone: np.ndarray) -> None:
    heard = spoken.samples
    if spoken.status == qtlib.OK:
        assert len(heard) == len(alone)
    else:
        assert plan.ends, spoken.error
        assert spoken.status == qtlib.CANCELLED, spoken.error
    assert (heard.view(np.uint32) == alone[: len(heard)].view(np.uint32)).all()


@pytest.mark.parametrize("file_type", ["F32", "Q8_0"])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_lane_is_the_request_alone(context, voice, icl_voice, seed, file_type):
    print(f"seed {seed}")
    plans = schedule(seed, [{}, voice, icl_voice])
    single = context("tiny-base", file_type)
    alone = {}
    for plan in plans:
        key = plan.fields["seed"]
        if key not in alone:
            spoken = single.buffered(**plan.fields)
            assert spoken.status == qtlib.OK, spoken.error
            alone[key] = spoken.samples
    spoken = run_all(context("tiny-base", file_type, max_batch=WIDTH), plans)
    for i, (plan, got) in enumerate(zip(plans, spoken, strict=True)):
        try:
            check(plan, got, alone[plan.fields["seed"]])
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, request {i}, {plan}: {error}") from error
    left = sum(got.status == qtlib.CANCELLED for got in spoken)
    assert 20 < left < N_REQUESTS - 20  # both kinds were there


@pytest.mark.parametrize("seed", SEEDS)
def test_a_storm_of_cancels_leaves_nothing_behind(context, voice, icl_voice, seed):
    """Everybody leaves, at any point from the queue to the last frame; then all is as before."""
    ctx = context("tiny-base", "Q8_0", max_batch=WIDTH)
    request = {"text": "hello world", "seed": 3, "max_new_tokens": 6, **voice}
    before = ctx.buffered(**request).samples
    rng = random.Random(seed)
    plans = [
        Plan(
            {"text": "hello " * rng.randint(1, 20), "max_new_tokens": 400}
            | rng.choice(({}, voice, icl_voice)),
            rng.random() * 0.1,
            ends=rng.choice(("cancel", "flow", "chunk")),
            after=rng.randint(1, 4),
        )
        for _ in range(60)
    ]
    assert [s.status for s in run_all(ctx, plans)] == [qtlib.CANCELLED] * len(plans)
    assert (ctx.buffered(**request).samples == before).all()


def test_paused_lanes_do_not_stall_the_others(context, voice):
    """Seven of eight wait for listeners that come back only when the eighth is done."""
    ctx = context("tiny-base", "Q8_0", max_batch=WIDTH)
    request = {"text": "hello world", "max_new_tokens": 30, **voice}
    done = threading.Event()
    paused = [threading.Event() for _ in range(WIDTH - 1)]
    results: dict[int, qtlib.Spoken] = {}

    def wait(i: int) -> None:
        def flow() -> int:
            paused[i].set()
            return 1 if done.is_set() else 2

        results[i] = ctx.streamed(flow=flow, seed=i, **request)

    threads = [threading.Thread(target=wait, args=(i,)) for i in range(WIDTH - 1)]
    for thread in threads:
        thread.start()
    for event in paused:
        assert event.wait(20)
    spoken = ctx.streamed(seed=99, **request)
    assert not results  # nobody else went on meanwhile
    done.set()
    for thread in threads:
        thread.join(60)
    assert spoken.status == qtlib.OK
    assert spoken.frames == 30
    for i in range(WIDTH - 1):
        alone = context("tiny-base", "Q8_0").buffered(seed=i, **request)
        assert (results[i].samples == alone.samples).all()


class Speaker:
    """A lane that speaks until it is told to stop, and counts its frames."""

    def __init__(self, ctx: qtlib.Context, voice: dict[str, Any]) -> None:
        self.frames = 0
        self.speaking, self._stop = threading.Event(), threading.Event()
        request = {"text": "hello", "seed": 1, "max_new_tokens": 400, "loop_repeats": 0, **voice}
        self._thread = threading.Thread(
            target=lambda: ctx.streamed(flow=self._flow, cancel=self._stop.is_set, **request)
        )

    def _flow(self) -> int:
        self.frames += 1
        self.speaking.set()
        return 1

    def __enter__(self) -> Speaker:
        self._thread.start()
        assert self.speaking.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)


def test_long_prompts_join_in_steps_between_the_frames_of_others(context, voice):
    """Three prompts at once: no more rows than one step holds between two frames of a speaker."""
    ctx = context("tiny-base", "Q8_0", max_batch=4)
    joined: list[tuple[int, int, int]] = []
    with Speaker(ctx, voice) as speaker:

        def join(i: int) -> None:
            begun = speaker.frames
            text = "hello world and you " * 10 + "a" * i
            spoken = ctx.streamed(text=text, seed=i, text_layout=2, max_new_tokens=1)
            assert spoken.status == qtlib.OK, spoken.error
            joined.append((spoken.result.n_prompt_rows, begun, speaker.frames))

        threads = [threading.Thread(target=join, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    rows = sum(n for n, _, _ in joined)
    assert rows > 200
    # From the first one's start: they do not all begin within one frame.
    frames = max(ended for _, _, ended in joined) - min(begun for _, begun, _ in joined)
    assert frames >= rows // PREFILL_ROWS


def test_references_are_primed_in_steps_between_the_frames_of_others(context, voice):
    ctx = context("tiny-base", "Q8_0", max_batch=2)
    codes = np.random.default_rng(5).integers(0, 2048, (16, 125)).astype(np.int32)
    reference = {**voice, "ref_codes": codes, "ref_T": 125, "ref_text": "and you"}
    request = {"text": "hello", "seed": 2, "max_new_tokens": 3, **reference}
    rounds: list[int] = []  # in each, `cancel` is asked once
    with Speaker(ctx, voice) as speaker:
        begun = speaker.frames
        joined = ctx.streamed(cancel=lambda: bool(rounds.append(1)), **request)
        passed = speaker.frames - begun
    prefill = -(-joined.result.n_prompt_rows // PREFILL_ROWS)
    prime = len(rounds) - 1 - prefill - joined.frames
    assert prime >= 125 // 32 + 3  # 32 frames a step, and the last ones two by two
    assert passed >= prefill + prime
    alone = context("tiny-base", "Q8_0").buffered(**request)
    assert (joined.samples == alone.samples).all()


def test_a_voice_is_extracted_between_the_frames_of_others(context, voice):
    """Others speak on, join and leave meanwhile, and the voice is the same."""
    from test_native_voice import extract

    ctx = context("tiny-base", "Q8_0", max_batch=3)
    audio = np.random.default_rng(3).normal(0, 0.1, 24000 * 6).astype(np.float32)
    _, quiet = extract(ctx, audio)
    with Speaker(ctx, voice) as speaker:
        begun = speaker.frames
        _, busy = extract(ctx, audio)
        assert speaker.frames - begun >= 16 + 4  # a breath for each book and each second or so
    assert (busy["ref_codes"] == quiet["ref_codes"]).all()
    assert (busy["ref_spk_emb"] == quiet["ref_spk_emb"]).all()


def test_an_extraction_can_be_cancelled_on_the_way(context, voice):
    ctx = context("tiny-base", "Q8_0", max_batch=2)
    audio = np.random.default_rng(3).normal(0, 0.1, 24000 * 6).astype(np.float32)
    asked = []
    spoken = ctx.streamed(
        cancel=lambda: asked.append(1) or len(asked) > 5,
        text="hello",
        max_new_tokens=3,
        ref_audio_24k=audio,
        ref_n_samples=len(audio),
        ref_text="and you",
    )
    assert spoken.status == qtlib.CANCELLED
    assert len(asked) == 6
    assert spoken.result.reference_ms == 0  # it never got as far
    after = ctx.buffered(text="hello", seed=1, max_new_tokens=3, **voice)
    alone = context("tiny-base", "Q8_0").buffered(text="hello", seed=1, max_new_tokens=3, **voice)
    assert (after.samples == alone.samples).all()
