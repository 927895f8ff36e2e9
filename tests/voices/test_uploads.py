"""Every kind of upload as a draft. What FFmpeg reads and refuses is tests/audio's."""

from __future__ import annotations

import base64
import contextlib
import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from voice_samples import hum

from phonate.errors import InvalidRequest, PhonateError, TooLarge, UnsupportedMedia
from phonate.voices.recording import pack_wav, unpack_wav
from phonate.voices.uploads import decode_base64, draft_from_fields, read_embedding
from phonate.voices.voice import Material

WAV = pack_wav(hum(1.2))
WAV_B64 = base64.b64encode(WAV).decode()
SPK_B64 = base64.b64encode(struct.pack("<3f", 1, 2, 3)).decode()
NAN_B64 = base64.b64encode(struct.pack("<f", float("nan"))).decode()
RVQ_B64 = base64.b64encode(bytes(range(44))).decode()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("fields", "material"),
    [
        ({"wav_b64": WAV_B64}, Material.REFERENCE),
        ({"audio_sample": WAV}, Material.REFERENCE),
        ({"spk_b64": SPK_B64, "rvq_b64": RVQ_B64}, Material.LATENTS),
        ({"speaker_embedding": [1, 2.5, 3]}, Material.EMBEDDING),
        ({"speaker_embedding": "[1, 2.5, 3]"}, Material.EMBEDDING),
        (
            {"speaker_embedding": [1], "wav_b64": None, "ref_text": " ", "audio_sample": ""},
            Material.EMBEDDING,
        ),
    ],
)  # fmt: skip
def test_each_source_makes_its_material(fields: dict[str, Any], material: Material) -> None:
    draft = draft_from_fields({"name": " Anna ", **fields})
    assert draft.material == material
    assert draft.name == "Anna"
    assert draft.ref_text is None


def test_the_recording_is_the_upload() -> None:
    draft = draft_from_fields({"name": "Anna", "audio_sample": WAV, "ref_text": "Hm.\n Yes."})
    heard = unpack_wav(draft.files["reference.wav"])
    assert np.abs(heard - unpack_wav(WAV)).max() < 2 / 32768
    assert draft.ref_text == "Hm. Yes."


def test_latents_are_kept_byte_for_byte() -> None:
    draft = draft_from_fields({"name": "Anna", "spk_b64": SPK_B64, "rvq_b64": RVQ_B64})
    assert draft.files == {"voice.spk": struct.pack("<3f", 1, 2, 3), "voice.rvq": bytes(range(44))}


def test_both_names_of_a_description() -> None:
    for key in ("description", "speaker_description"):
        assert draft_from_fields(
            {"name": "a", "speaker_embedding": [1], key: "warm"}
        ).description == ("warm")


@pytest.mark.parametrize(
    ("fields", "kind", "param"),
    [
        ({}, InvalidRequest, "wav_b64"),
        ({"spk_b64": SPK_B64}, InvalidRequest, "spk_b64"),
        ({"rvq_b64": RVQ_B64}, InvalidRequest, "rvq_b64"),
        ({"wav_b64": WAV_B64, "speaker_embedding": [1]}, InvalidRequest, "speaker_embedding"),
        ({"wav_b64": 7}, InvalidRequest, "wav_b64"),
        ({"wav_b64": "not base64!"}, InvalidRequest, "wav_b64"),
        ({"wav_b64": "data:audio/wav,xyz"}, InvalidRequest, "wav_b64"),
        ({"wav_b64": b64(b"hello, I am text")}, UnsupportedMedia, "wav_b64"),
        ({"wav_b64": "A" * (14 * 2**20)}, TooLarge, "wav_b64"),
        ({"wav_b64": b64(bytes(10 * 2**20 + 1))}, TooLarge, "wav_b64"),
        ({"wav_b64": b64(pack_wav(hum(0.2)))}, InvalidRequest, "wav_b64"),
        ({"wav_b64": b64(pack_wav(hum(40)))}, InvalidRequest, "wav_b64"),
        ({"wav_b64": b64(pack_wav(np.zeros(48_000, np.float32)))}, InvalidRequest, "wav_b64"),
        ({"wav_b64": b64(pack_wav(8 * hum(2)))}, InvalidRequest, "wav_b64"),
        ({"audio_sample": "a path?"}, InvalidRequest, "audio_sample"),
        ({"spk_b64": b64(b"12345"), "rvq_b64": RVQ_B64}, InvalidRequest, "spk_b64"),
        ({"spk_b64": NAN_B64, "rvq_b64": RVQ_B64}, InvalidRequest, "spk_b64"),
        ({"spk_b64": SPK_B64, "rvq_b64": b64(bytes(23))}, InvalidRequest, "rvq_b64"),
        ({"speaker_embedding": [True]}, InvalidRequest, "speaker_embedding"),
        ({"speaker_embedding": ["1"]}, InvalidRequest, "speaker_embedding"),
        ({"speaker_embedding": [[1]]}, InvalidRequest, "speaker_embedding"),
        ({"speaker_embedding": [0, 0]}, InvalidRequest, "speaker_embedding"),
        ({"speaker_embedding": [10**400]}, InvalidRequest, "speaker_embedding"),
        ({"speaker_embedding": [1] * 9000}, InvalidRequest, "speaker_embedding"),
        ({"speaker_embedding": "[1, NaN]"}, InvalidRequest, "speaker_embedding"),
        ({"speaker_embedding": "[1,"}, InvalidRequest, "speaker_embedding"),
        ({"speaker_embedding": "[" * 10_000}, InvalidRequest, "speaker_embedding"),
        ({"speaker_embedding": {"a": 1}}, InvalidRequest, "speaker_embedding"),
        ({"speaker_embedding": [1], "ref_text": "words"}, InvalidRequest, "ref_text"),
        ({"speaker_embedding": [1], "description": "x" * 2001}, InvalidRequest, "description"),
        ({"speaker_embedding": [1], "description": 5}, InvalidRequest, "description"),
        ({"speaker_embedding": [1], "language": "a\0b"}, InvalidRequest, "language"),
        ({"speaker_embedding": [1], "consent": "\ud800"}, InvalidRequest, "consent"),
        ({"speaker_embedding": [1], "name": None}, InvalidRequest, "name"),
        ({"speaker_embedding": [1], "name": "../x"}, InvalidRequest, "name"),
        ({"speaker_embedding": [1], "name": "voice_" + 24 * "0"}, InvalidRequest, "name"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(
    fields: dict[str, Any], kind: type[PhonateError], param: str
) -> None:
    with pytest.raises(kind) as caught:
        draft_from_fields({"name": "Anna", **fields})
    assert caught.value.param == param
    assert len(caught.value.message) < 300


@given(st.binary(max_size=200))
def test_base64_of_both_alphabets_with_and_without_padding(data: bytes) -> None:
    plain, url = base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()
    for text in (plain, url, plain.rstrip("="), f"data:audio/wav;base64,{plain}", f" {plain}\n"):
        assert decode_base64(text, "x") == data
    assert decode_base64("\n".join(plain), "x") == data


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists))
def test_no_embedding_crashes(value: object) -> None:
    for candidate in (value, json.dumps(value)):
        try:
            numbers = read_embedding(candidate)
        except InvalidRequest:
            continue
        assert all(isinstance(x, int | float) for x in numbers)


anything = st.none() | st.text(max_size=50) | st.integers() | st.lists(st.floats(), max_size=3)


@given(
    st.dictionaries(
        st.sampled_from(
            ["name", "wav_b64", "spk_b64", "rvq_b64", "speaker_embedding", "ref_text", "language"]
        ),
        anything | st.binary(),
    )
)
def test_no_combination_of_fields_crashes(fields: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidRequest, UnsupportedMedia):
        assert draft_from_fields(fields).files
