"""Voices through the C ABI: extraction, and that audio and its latents speak alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import qtlib
from golden_cases import reference_audio

GOLDEN = Path(__file__).parents[1] / "golden"


def extract(ctx: qtlib.Context, audio: np.ndarray) -> tuple[int, dict[str, Any]]:
    lib, ffi = qtlib.load(), qtlib.ffi()
    audio, ref = np.ascontiguousarray(audio, np.float32), ffi.new("qt_voice_ref *")
    pointer = ffi.cast("float *", audio.ctypes.data)
    status = lib.qt_extract_voice_ref(ctx.handle, pointer, len(audio), ref)
    if status != qtlib.OK:
        assert ref.ref_spk_emb == ref.ref_codes == ffi.NULL
        return status, {}
    embedding = np.frombuffer(ffi.buffer(ref.ref_spk_emb, ref.ref_spk_dim * 4), np.float32).copy()
    n_codes = ref.num_codebooks * ref.ref_T
    codes = np.frombuffer(ffi.buffer(ref.ref_codes, n_codes * 4), np.int32).copy()
    fields = {
        "ref_spk_emb": embedding,
        "ref_spk_dim": ref.ref_spk_dim,
        "ref_codes": codes.reshape(ref.num_codebooks, ref.ref_T),
        "ref_T": ref.ref_T,
    }
    lib.qt_voice_ref_free(ref)
    assert (ref.ref_spk_emb, ref.ref_codes, ref.ref_T) == (ffi.NULL, ffi.NULL, 0)
    lib.qt_voice_ref_free(ref)
    return status, fields


@pytest.mark.parametrize("model", ["tiny-base", "tiny-base-proj"])
def test_extraction_is_the_official_one(context, model):
    status, voice = extract(context(model), reference_audio())
    assert status == qtlib.OK, qtlib.last_error()
    golden = np.load(GOLDEN / f"{model}.npz")
    assert (golden["reference_codes"] == voice["ref_codes"].T).all()
    expected = golden["speaker_embedding"]
    assert np.abs(voice["ref_spk_emb"] - expected).max() < 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("text", [None, "and you"])
def test_audio_speaks_as_its_latents_do(context, text):
    audio = reference_audio(8000)
    _, voice = extract(context(), audio)
    request = {"text": "Hello world", "seed": 2, "max_new_tokens": 6}
    if text is None:
        voice = {k: voice[k] for k in ("ref_spk_emb", "ref_spk_dim")}
    by_latents = context().buffered(**request, **voice, ref_text=text)
    by_audio = context().buffered(
        **request, ref_audio_24k=audio, ref_n_samples=len(audio), ref_text=text
    )
    assert by_audio.status == qtlib.OK, by_audio.error
    assert (by_audio.samples == by_latents.samples).all()
    assert by_audio.result.reference_ms > 0
    assert by_latents.result.reference_ms == 0


def test_shortest_reference_is_one_frame(context):
    for n, status in ((1919, qtlib.INVALID), (1920, qtlib.OK), (1921, qtlib.OK)):
        got, voice = extract(context(), reference_audio(n))
        assert got == status
        assert voice.get("ref_T", 0) == {1919: 0, 1920: 1, 1921: 2}[n]


def test_what_cannot_be_a_reference(context):
    audio = reference_audio(4000)
    audio[77] = np.nan
    assert extract(context(), audio)[0] == qtlib.INVALID
    assert "audio_24k: sample 77 is not finite" in qtlib.last_error()
    assert extract(context(), np.zeros(0, np.float32))[0] == qtlib.INVALID
    assert extract(context("tiny-customvoice"), reference_audio(4000))[0] == qtlib.MODE
    assert "this model is custom_voice" in qtlib.last_error()


def test_silence_and_full_scale_are_voices_too(context):
    for audio in (np.zeros(4000, np.float32), np.full(4000, 1e6, np.float32)):
        status, voice = extract(context(), audio)
        assert status == qtlib.OK, qtlib.last_error()
        assert np.isfinite(voice["ref_spk_emb"]).all()
        assert ((voice["ref_codes"] >= 0) & (voice["ref_codes"] < 2048)).all()
