"""The engine against the official package: prompt rows, hidden states, greedy codes, sound."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import qtlib
import testhooks
from golden_cases import CASES, MODELS, Case

GOLDEN = Path(__file__).parents[1] / "golden"
TOLERANCE = 1e-4
"""Of the largest value of a stage. Measured: 1e-6."""


def pointer(value: Any) -> ctypes.c_void_p:
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    return ctypes.c_void_p(int(qtlib.ffi().cast("intptr_t", value)))


def check(found: np.ndarray, golden: Any, key: str, rows: int | None = None) -> None:
    """`found` against the stored array, thinned out as that one is; `rows` keeps its first ones."""
    stored = next(name for name in golden.files if name == key or name.startswith(f"{key}_every"))
    step = int(stored.rpartition("_every")[2]) if stored != key else 1
    expected = golden[stored][:rows]
    thinned = found[..., ::step]
    shared = min(thinned.shape[-1], expected.shape[-1])
    assert thinned.shape[:-1] == expected.shape[:-1], key
    difference = np.abs(thinned[..., :shared] - expected[..., :shared]).max()
    error = difference / np.abs(expected).max()
    assert error < TOLERANCE, f"{key}: {error:.1e}"


def params_of(case: Case) -> qtlib.Params:
    params = qtlib.tts_params(
        text=case.text,
        lang=case.language,
        instruct=case.instruct,
        speaker=case.speaker,
        text_layout=1 if case.streaming else 2,
        max_new_tokens=case.max_frames,
        **qtlib.GREEDY,
    )
    if MODELS[case.model].kind == "base":
        parts = np.load(GOLDEN / f"tiny-base{'-proj' if 'proj' in case.model else ''}.npz")
        embedding = parts["speaker_embedding"]
        params.set(ref_spk_emb=embedding, ref_spk_dim=len(embedding))
        if case.reference:
            codes = np.load(GOLDEN / "tiny-base.npz")["reference_codes"][: case.reference]
            params.set(ref_codes=codes.T.astype(np.int32), ref_T=case.reference)
            params.set(ref_text=case.ref_text)
    return params


@pytest.fixture(scope="module")
def loaded(made):
    """Name of a model -> the engine behind the test hooks."""
    hooks, cache = testhooks.load(), {}
    hooks.hook_engine_new.restype = ctypes.c_void_p

    def load(name: str) -> ctypes.c_void_p:
        if name not in cache:
            files = made(name)
            init = qtlib.init_params(files.talker, files.codec)
            cache[name] = ctypes.c_void_p(hooks.hook_engine_new(pointer(init.struct)))
            assert cache[name], testhooks.error()
        return cache[name]

    yield load
    for engine in cache.values():
        hooks.hook_engine_free(engine)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_prompt_rows_hidden_state_and_logits(loaded, case):
    hooks, engine = testhooks.load(), loaded(case.model)
    shape = np.zeros(2, np.int32)
    hooks.hook_engine_shape(engine, pointer(shape))
    hidden, logits = np.zeros(shape[0], np.float32), np.zeros(shape[1], np.float32)
    rows = np.zeros((200, shape[0]), np.float32)
    params = params_of(case)
    n = hooks.hook_engine_prompt(
        engine, pointer(params.struct), pointer(rows), rows.size, pointer(hidden), pointer(logits)
    )
    assert n > 0, testhooks.error()
    golden = np.load(GOLDEN / f"{case.name}.npz")
    check(rows[:n], golden, "prefill")
    check(hidden[None], golden, "hidden", rows=1)
    # Of the head's 3072 rows the engine computes the 2048 real codes and the end.
    check(logits[None, :2048], golden, "logits", rows=1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_greedy_frame_and_its_sound(loaded, case):
    hooks, engine = testhooks.load(), loaded(case.model)
    golden = np.load(GOLDEN / f"{case.name}.npz")
    codes = np.zeros((len(golden["codes"]) + 8, 16), np.int32)
    audio = np.zeros(len(codes) * qtlib.FRAME, np.float32)
    finish = np.zeros(1, np.int32)
    params = params_of(case)
    frames = hooks.hook_engine_generate(
        engine,
        pointer(params.struct),
        pointer(codes),
        codes.size,
        pointer(audio),
        audio.size,
        pointer(finish),
    )
    assert frames == len(golden["codes"]), testhooks.error()
    assert (codes[:frames] == golden["codes"]).all()
    assert finish[0] == (qtlib.STOP if case.name == "stops-by-itself" else qtlib.LENGTH)
    check(audio[: frames * qtlib.FRAME], golden, "audio")
