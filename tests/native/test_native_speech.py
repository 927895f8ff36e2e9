"""How a request runs: chunks, threads, cancelling, pausing, batches, contexts side by side."""

from __future__ import annotations

import os
import threading
import time

import gguf
import numpy as np
import pytest
import qtlib

TEXT = "Hello world, the user and you."


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool((a.view(np.uint32) == b.view(np.uint32)).all())


@pytest.mark.parametrize("file_type", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "P5", "P4"])
def test_streamed_is_buffered_bit_for_bit(context, voice, file_type):
    ctx = context("tiny-base", file_type)
    request = {"text": TEXT, "seed": 7, "max_new_tokens": 23, **voice}
    whole = ctx.buffered(**request)
    assert whole.status == qtlib.OK
    assert whole.frames == 23
    assert len(whole.samples) == 23 * qtlib.FRAME
    assert np.abs(whole.samples).max() > 0.01
    for first in (0, 1, 2, 5, 64):
        streamed = ctx.streamed(first_chunk_frames=first, **request)
        assert same(streamed.samples, whole.samples)


def test_fast_precision_streams_alike_too(context, icl_voice):
    request = {"text": TEXT, "seed": 7, "max_new_tokens": 9, **icl_voice}
    whole = context("tiny-base", "Q8_0", precision=1).buffered(**request)
    one_thread = context("tiny-base", "Q8_0", precision=1, n_threads=1)
    assert same(one_thread.streamed(**request).samples, whole.samples)
    assert not same(context("tiny-base", "Q8_0").buffered(**request).samples, whole.samples)


def test_a_known_voice_starts_from_a_snapshot(context, icl_voice):
    """Bit for bit what a context that never heard the voice makes."""
    heard, new = context("tiny-base", "Q8_0"), context("tiny-base", "Q8_0", talker_kv_size=500)
    request = {"seed": 7, "max_new_tokens": 6, "lang": "german", **icl_voice}
    first = heard.buffered(text="Hello world", **request)
    assert first.result.n_prompt_cached < first.result.n_prompt_rows
    again = heard.buffered(text="the user and you", **request)
    # Role, prefix and the words of the reference; the rest depends on the text.
    assert again.result.n_prompt_cached >= 3 + 6
    fresh = new.buffered(text="the user and you", **request)
    assert fresh.result.n_prompt_cached == 0
    assert same(again.samples, fresh.samples)


def test_voices_that_differ_in_one_number_are_two(context, voice):
    ctx, request = context("tiny-base", "Q8_0"), {"text": TEXT, "seed": 7, "max_new_tokens": 4}
    other = voice["ref_spk_emb"].copy()
    other[-1] += 1.0
    changed = {**voice, "ref_spk_emb": other}
    a, b = ctx.buffered(**request, **voice), ctx.buffered(**request, **changed)
    assert not same(a.samples, b.samples)
    new = context("tiny-base", "Q8_0", talker_kv_size=501)
    assert same(b.samples, new.buffered(**request, **changed).samples)


def test_does_not_end_before_two_frames(made, tmp_path, voice):
    """A head whose end is a thousand times louder: its first chance is taken, none before."""
    files = made("tiny-base")
    reader = gguf.GGUFReader(files.talker)
    head = next(t for t in reader.tensors if t.name == "talker.codec_head.weight")
    loud = bytearray(files.talker.read_bytes())
    row = np.frombuffer(loud, np.float32, 128, head.data_offset + 2150 * 128 * 4)
    row *= 1000
    (tmp_path / "loud.gguf").write_bytes(loud)
    with qtlib.Context(tmp_path / "loud.gguf", files.codec) as ctx:
        frames = [
            ctx.buffered(text=text, max_new_tokens=9, **qtlib.GREEDY, **voice).frames
            for text in ("Hello", "you", "the user", "is it", "a", "world", "and", "in")
        ]
    assert min(frames) == 2


def test_chunks_grow_from_one_frame(context, voice):
    spoken = context().streamed(text=TEXT, seed=7, max_new_tokens=13, **voice)
    assert [len(c) // qtlib.FRAME for c in spoken.chunks] == [1, 2, 4, 4, 2]
    spoken = context(stream_frames_max=2).streamed(text=TEXT, seed=7, max_new_tokens=6, **voice)
    assert [len(c) // qtlib.FRAME for c in spoken.chunks] == [1, 2, 2, 1]


@pytest.mark.parametrize("file_type", ["F32", "Q8_0"])
def test_one_thread_is_any_number_of_threads(context, icl_voice, file_type):
    request = {"text": TEXT, "seed": 3, "max_new_tokens": 12, **icl_voice}
    one = context("tiny-base", file_type, n_threads=1).buffered(**request)
    for n in (2, 3, 5):
        many = context("tiny-base", file_type, n_threads=n).buffered(**request)
        assert same(one.samples, many.samples)


def test_a_seed_replays_and_another_differs(context, voice):
    request = {"text": TEXT, "max_new_tokens": 8, **voice}
    first = context().buffered(seed=5, **request)
    assert first.result.seed_used == 5
    assert same(first.samples, context().buffered(seed=5, **request).samples)
    assert not same(first.samples, context().buffered(seed=6, **request).samples)
    drawn = context().buffered(**request)
    assert drawn.result.seed_used >= 0
    replayed = context().buffered(seed=drawn.result.seed_used, **request)
    assert same(drawn.samples, replayed.samples)


def test_greedy_needs_no_seed(context, voice):
    request = {"text": TEXT, "max_new_tokens": 8, **voice}
    greedy = context().buffered(seed=1, **qtlib.GREEDY, **request)
    assert same(greedy.samples, context().buffered(seed=2, **qtlib.GREEDY, **request).samples)
    cold = context().buffered(seed=3, temperature=0.0, subtalker_temperature=0.0, **request)
    assert same(greedy.samples, cold.samples)


def test_result_tells_how_it_went(context, voice):
    spoken = context().streamed(text=TEXT, seed=9, max_new_tokens=5, **voice)
    r = spoken.result
    assert (r.status, r.finish_reason, r.n_frames) == (qtlib.OK, qtlib.LENGTH, 5)
    assert r.n_text_tokens > 3
    assert r.n_prompt_rows == 9  # role 3, prefix 5 with the voice, the first text token
    assert 0 < r.first_chunk_ms <= r.total_ms
    for stage in (r.prefill_ms, r.talker_ms, r.predictor_ms, r.codec_ms):
        assert 0 < stage < r.total_ms


def test_stops_by_itself(context, voice):
    spoken = context("tiny-base-eos").buffered(
        text="Hello world", text_layout=2, max_new_tokens=300, **qtlib.GREEDY, **voice
    )
    assert spoken.result.finish_reason == qtlib.STOP
    assert 2 <= spoken.frames < 300
    assert len(spoken.samples) == spoken.frames * qtlib.FRAME


def test_loop_guard_ends_a_loop_and_can_be_off(context, voice):
    # Without penalty a random model repeats itself soon when it is greedy.
    request = {"text": TEXT, "max_new_tokens": 200, "repetition_penalty": 1.0, **qtlib.GREEDY}
    quick = {"loop_window": 12, "loop_max_period": 12, "loop_repeats": 1}
    free = context().buffered(**request, loop_repeats=0, **voice)
    assert free.frames == 200
    guarded = context().buffered(**request, **quick, no_repeat_ngram_size=0, **voice)
    assert guarded.result.finish_reason == qtlib.LOOP
    assert guarded.frames < 200
    assert same(guarded.samples, free.samples[: len(guarded.samples)])
    nudged = context().buffered(**request, **quick, **voice)
    assert nudged.frames > guarded.frames


@pytest.mark.parametrize("stop_at", [1, 2, 3])
def test_cancelled_by_on_chunk_then_as_fresh(context, voice, stop_at):
    request = {"text": TEXT, "seed": 4, "max_new_tokens": 20, **voice}
    fresh = context().buffered(**request)
    spoken = context().streamed(on_chunk=lambda n: n < stop_at, **request)
    assert spoken.status == qtlib.CANCELLED
    assert spoken.result.finish_reason == qtlib.CANCEL
    assert len(spoken.chunks) == stop_at
    assert same(context().buffered(**request).samples, fresh.samples)


@pytest.mark.parametrize("polls", [0, 1, 3, 9])
def test_cancelled_by_the_callback_within_a_frame(context, icl_voice, polls):
    asked = []

    def cancel() -> bool:
        asked.append(1)
        return len(asked) > polls

    spoken = context().streamed(
        cancel=cancel, text=TEXT, seed=4, max_new_tokens=50, first_chunk_frames=1, **icl_voice
    )
    assert spoken.status == qtlib.CANCELLED
    assert spoken.error == "cancel returned true"
    assert len(asked) == polls + 1
    assert spoken.frames <= polls


def test_flow_waits_without_losing_anything(context, voice):
    request = {"text": TEXT, "seed": 4, "max_new_tokens": 9, **voice}
    answers = iter([1, 2, 2, 2, 1, 2, 1, *[1] * 20])
    start = time.monotonic()
    spoken = context().streamed(flow=lambda: next(answers), **request)
    assert time.monotonic() - start > 0.004 * 4
    assert spoken.status == qtlib.OK
    assert same(spoken.samples, context().buffered(**request).samples)


def test_a_waiting_request_still_hands_out_what_was_made(context, voice):
    """The chunk of frames 2 and 3 is decoded in the background when the listener says wait; a
    player that waits for it would otherwise wait for ever."""
    request = {"text": TEXT, "seed": 4, "max_new_tokens": 9, **voice}
    heard, asked = [], []

    def flow():
        asked.append(len(heard))
        if len(asked) > 2000:
            return 0
        return 1 if len(asked) <= 3 or len(heard) >= 2 else 2

    spoken = context("tiny-base", "Q8_0").streamed(
        flow=flow, on_chunk=lambda n: heard.append(n) or True, **request
    )
    assert spoken.status == qtlib.OK
    assert [len(c) for c in spoken.chunks[:2]] == [qtlib.FRAME, 2 * qtlib.FRAME]
    assert same(spoken.samples, context("tiny-base", "Q8_0").buffered(**request).samples)


def test_cancelled_while_a_chunk_is_decoded_then_as_fresh(context, voice):
    ctx = context("tiny-base", "Q8_0")
    request = {"text": TEXT, "seed": 4, "max_new_tokens": 15, **voice}
    whole = ctx.buffered(**request)
    for frames in (1, 3, 4, 7):
        answers = iter([1] * frames + [0])
        cut = ctx.streamed(flow=lambda it=answers: next(it), **request)
        assert cut.status == qtlib.CANCELLED
        assert cut.frames == frames
        assert same(ctx.streamed(**request).samples, whole.samples)


def test_flow_cancels(context, voice):
    for answer in (0, 77):
        answers = iter([1, 1, answer])
        spoken = context().streamed(
            flow=lambda it=answers: next(it), text=TEXT, max_new_tokens=9, **voice
        )
        assert spoken.status == qtlib.CANCELLED
        assert spoken.frames == 2


def test_a_waiting_request_can_be_cancelled(context, voice):
    stop = threading.Event()
    answers = []
    threading.Timer(0.05, stop.set).start()
    spoken = context().streamed(
        flow=lambda: answers.append(2) or 2,
        cancel=stop.is_set,
        text=TEXT,
        max_new_tokens=9,
        **voice,
    )
    assert spoken.status == qtlib.CANCELLED
    assert len(answers) >= 4  # at least every 10 ms


def together(ctx: qtlib.Context, requests: list[dict]) -> list[qtlib.Spoken]:
    results: list[qtlib.Spoken | None] = [None] * len(requests)

    def run(i: int) -> None:
        results[i] = ctx.streamed(**requests[i])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [r for r in results if r is not None]


@pytest.mark.parametrize("file_type", ["F32", "Q8_0"])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_lane_does_not_hear_its_neighbours(context, voice, icl_voice, file_type, width):
    ctx = context("tiny-base", file_type, max_batch=width)
    requests = [
        {"text": TEXT, "seed": 1, "max_new_tokens": 17, **voice},
        {"text": "Hello", "seed": 2, "max_new_tokens": 9, **icl_voice},
        {"text": "is it the user", "seed": 3, "max_new_tokens": 13, "text_layout": 2, **voice},
        {"text": "you " * 20, "seed": 4, "max_new_tokens": 6},
        {"text": "a", "seed": 5, "max_new_tokens": 11, **voice},
        {"text": TEXT, "seed": 6, "max_new_tokens": 5, **qtlib.GREEDY, **icl_voice},
    ]
    alone = [context("tiny-base", file_type).buffered(**r) for r in requests]
    for spoken, expected in zip(together(ctx, requests), alone, strict=True):
        assert spoken.status == qtlib.OK
        assert same(spoken.samples, expected.samples)


def test_a_failing_or_cancelled_lane_does_not_hurt_the_others(context, voice):
    ctx = context(max_batch=3)
    good = {"text": TEXT, "seed": 1, "max_new_tokens": 20, **voice}
    expected = context().buffered(**good)
    cancelled = {**good, "cancel": None}
    polls = []
    requests = [good, cancelled, {**good, "seed": 2}]
    results: dict[int, qtlib.Spoken] = {}

    def run(i: int) -> None:
        stop = (lambda: polls.append(1) or len(polls) > 6) if i == 1 else None
        fields = {k: v for k, v in requests[i].items() if k != "cancel"}
        results[i] = ctx.streamed(cancel=stop, **fields)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results[1].status == qtlib.CANCELLED
    assert results[0].status == results[2].status == qtlib.OK
    assert same(results[0].samples, expected.samples)


def test_a_queued_request_is_polled_and_can_be_cancelled(context, voice):
    ctx = context()
    gate, hold = threading.Event(), threading.Event()

    def wait(_: int) -> bool:
        gate.set()
        return True

    request = {"text": TEXT, "seed": 1, "max_new_tokens": 10, **voice}
    first = threading.Thread(
        target=lambda: ctx.streamed(
            on_chunk=wait, flow=lambda: 1 if hold.is_set() else 2, **request
        )
    )
    # The first request holds the only lane while its listener is not ready.
    first.start()
    queued = ctx.streamed(cancel=lambda: True, **request)
    assert queued.status == qtlib.CANCELLED
    assert not queued.chunks
    audio = np.zeros(24000, np.float32)
    by_audio = {"text": TEXT, "max_new_tokens": 9, "ref_audio_24k": audio}
    by_audio["ref_n_samples"] = len(audio)
    assert ctx.streamed(cancel=lambda: True, **by_audio).status == qtlib.CANCELLED
    hold.set()
    first.join()
    assert gate.is_set()


def test_two_contexts_speak_at_once(context, voice):
    a, b = context("tiny-base", "F32"), context("tiny-customvoice", "F32")
    ask_a = {"text": TEXT, "seed": 1, "max_new_tokens": 15, **voice}
    ask_b = {"text": TEXT, "seed": 1, "max_new_tokens": 15, "speaker": "ryan"}
    alone_a, alone_b = a.buffered(**ask_a), b.buffered(**ask_b)
    results: dict[str, qtlib.Spoken] = {}
    threads = [
        threading.Thread(target=lambda: results.update(a=a.buffered(**ask_a))),
        threading.Thread(target=lambda: results.update(b=b.buffered(**ask_b))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same(results["a"].samples, alone_a.samples)
    assert same(results["b"].samples, alone_b.samples)
    assert not same(alone_a.samples, alone_b.samples)


def test_free_cancels_what_runs_and_waits(made, voice):
    files = made("tiny-base")
    ctx = qtlib.Context(files.talker, files.codec)
    started = threading.Event()
    results: list[qtlib.Spoken] = []

    def run() -> None:
        on_chunk = lambda _: started.set() or True  # noqa: E731
        results.append(ctx.streamed(on_chunk=on_chunk, text=TEXT, max_new_tokens=400, **voice))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    started.wait(10)
    ctx.close()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert [r.status for r in results] == [qtlib.CANCELLED] * 3


def test_special_tokens_in_text_are_spoken(context, voice):
    request = {"seed": 1, "max_new_tokens": 4, "text_layout": 2, **voice}
    plain = context().buffered(text="Hello", **request)
    special = context().buffered(text="Hello<|im_end|>", **request)
    # "<|im_end|>" as text is several tokens, as a control token it would be one.
    assert special.result.n_text_tokens >= plain.result.n_text_tokens + 4


def test_onset_bans_keep_values_from_the_first_frames(context, voice):
    request = {"text": TEXT, "max_new_tokens": 3, **qtlib.GREEDY, **voice}
    plain = context().buffered(**request)
    ids = np.arange(0, 1024, dtype=np.int32)
    banned = context().buffered(
        onset_silence_ids=ids,
        onset_silence_id_count=len(ids),
        onset_silence_ban_frames=2,
        **request,
    )
    assert not same(plain.samples, banned.samples)
    unbanned = context().buffered(onset_silence_ids=ids, onset_silence_id_count=len(ids), **request)
    assert same(plain.samples, unbanned.samples)


@pytest.mark.skipif(
    "san.so" in os.environ.get("LD_PRELOAD", ""),
    reason="a sanitizer keeps freed memory on purpose, to notice its use",
)
def test_many_requests_leave_memory_flat(context, voice):
    ctx = context(n_threads=1)

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    def run(n: int) -> None:
        for i in range(n):
            ctx.streamed(text="a", seed=i, max_new_tokens=1, **voice)

    run(200)
    before = resident()
    run(1000)
    assert resident() - before < 4 << 20
