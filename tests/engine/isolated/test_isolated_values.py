"""Requests, results, voices and errors survive the way through bytes."""

from __future__ import annotations

import dataclasses
import inspect
import json
from pathlib import Path

import numpy as np
import pytest

from phonate import errors
from phonate.engine.base import (
    EngineInfo,
    Reference,
    Sampling,
    Speaker,
    SynthesisRequest,
    SynthesisResult,
)
from phonate.engine.isolated import values
from phonate.engine.models.model_files import ModelFiles
from phonate.engine.models.resolve import ResolvedModel
from phonate.errors import Busy, Cancelled, PhonateError, VoiceNotFound


def over(fields):
    """As the wire does."""
    return json.loads(json.dumps(fields))


def assert_same(one, other):
    for field in dataclasses.fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, np.ndarray):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_array_equal(a, b)
        elif dataclasses.is_dataclass(a):
            assert_same(a, b)
        else:
            assert a == b, field.name


FULL = SynthesisRequest(
    "Hello \ud800 世界\0",
    reference=Reference(
        np.array([1.5, np.nan], np.float32), np.arange(32, dtype=np.int32).reshape(2, 16), "Hi"
    ),
    language="english",
    instructions="softly",
    seed=-(2**63),
    max_new_tokens=7,
    sampling=Sampling(do_sample=True, temperature=0.5, top_k=3, subtalker_top_p=1.0),
    clone_mode="speaker_only",
    text_layout="non_streaming",
    initial_codec_chunk_frames=4,
)


@pytest.mark.parametrize(
    "request_",
    [
        FULL,
        SynthesisRequest("x", speaker="tone"),
        SynthesisRequest("x", reference=Reference(np.zeros(8))),
        SynthesisRequest("x", reference=Reference(np.zeros(0, np.float32), None, "t")),
    ],
)
def test_requests(request_):
    fields, body = values.pack_request(request_)
    assert_same(request_, values.unpack_request(over(fields), bytearray(body)))


def test_the_full_request_leaves_no_field_at_its_default():
    """Else a field that is added to the protocol might be lost unseen."""
    plain = SynthesisRequest("x")
    same = {f.name for f in dataclasses.fields(FULL) if f.name not in ("reference", "sampling")}
    same = {name for name in same if getattr(FULL, name) == getattr(plain, name)}
    assert same == {"speaker"}


def test_infos_results_models_and_recordings():
    info = EngineInfo(
        "qwen", "m", "cpu", 24_000, ("english",), (Speaker("a", "A"), Speaker("b", "B", "german")),
        details={"abi": "6"},
    )  # fmt: skip
    assert values.unpack_info(over(values.pack_info(info))) == info
    result = SynthesisResult("length", 3, 4, 2**63 - 1, "世界")
    assert values.unpack_result(over(values.pack_result(result))) == result
    model = ResolvedModel(ModelFiles(Path("/t.gguf"), Path("/c.gguf")), "id")
    assert values.unpack_model(over(values.pack_model(model))) == model
    assert values.unpack_model(values.pack_model(None)) is None
    audio = np.linspace(-1, 1, 1001, dtype=np.float32)[::2]
    fields, body = values.pack_recording(audio, None)
    heard, text = values.unpack_recording(over(fields), bytearray(body))
    np.testing.assert_array_equal(heard, audio)
    assert text is None


@pytest.mark.parametrize("n", [0, 1, 1920])
def test_chunks_are_bit_for_bit_and_writable(n):
    chunk = np.random.default_rng(1).normal(size=2 * n).astype(np.float32)[::2]
    out = values.unpack_chunk(bytearray(values.pack_chunk(chunk)))
    np.testing.assert_array_equal(out, chunk)
    assert out.dtype == np.float32
    assert out.flags.writeable


TREE = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, PhonateError) and not kind.__name__.startswith("_")
]


@pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)
def test_every_error_of_the_tree(kind):
    if kind is VoiceNotFound:
        error = kind("x", ["a", "b"])
    elif kind is errors.InternalError:
        error = kind("req_1")
    elif kind is Cancelled:
        error = kind("client_gone")
    elif issubclass(kind, errors._RetryLater):
        error = kind("later", retry_after_s=7)
    else:
        error = kind("wrong", param="voice", code="own_code")
    back = values.unpack_error(over(values.pack_error(error)))
    assert type(back) is kind
    assert vars(back) == vars(error)
    assert (back.code, str(back)) == (error.code, str(error))


def test_the_retry_after_survives():
    assert (
        values.unpack_error(over(values.pack_error(Busy("x", retry_after_s=9)))).retry_after_s == 9
    )


def test_a_foreign_error_keeps_its_traceback():
    back = values.unpack_error(
        over(values.pack_error(KeyError("x"), "Traceback ...\nKeyError: 'x'"))
    )
    assert isinstance(back, values.ForeignError)
    assert "KeyError: 'x'" in str(back)


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "os", "attributes": {}},
        {"type": "Iterable", "attributes": {"message": "x", "param": None}},
        {"type": "Busy", "attributes": {}},
        {},
    ],
)
def test_what_is_no_error_of_ours_is_refused(fields):
    with pytest.raises((KeyError, TypeError)):
        values.unpack_error(fields)


def test_arrays_of_objects_and_short_bodies_are_refused():
    with pytest.raises(TypeError, match="not expected"):
        values._unpack_arrays([{"dtype": "|O", "shape": [1]}], bytearray(8))
    with pytest.raises(ValueError, match="buffer"):
        values._unpack_arrays([{"dtype": "<f4", "shape": [3]}], bytearray(8))
