"""Field validation shared by HTTP and the WebSocket."""

from __future__ import annotations

import math

import pytest

from phonate.engine.base import Sampling
from phonate.errors import InvalidRequest
from phonate.speech.fields import SamplingFields, VoiceFields, read

NUMBERS = {
    "temperature": ([0, 0.0, 1, 0.9, 1e30], [-0.1, -1e-9, math.nan, math.inf, 1e300, 10**400]),
    "subtalker_temperature": ([0, 2.5], [-1]),
    "top_k": ([0, 1, 50, 50.0, 2**31 - 1], [-1, 1.5, 2**31]),
    "subtalker_top_k": ([0, 7], [-1]),
    "top_p": ([0.1, 1, 1.0], [0, -0.5, 1.01, 1e-60, math.nan]),
    "subtalker_top_p": ([0.5], [0]),
    "repetition_penalty": ([0.5, 1, 2], [0, -1, 1e-60, math.inf, math.nan]),
    "max_new_tokens": ([1, 2048], [0, -1, 2**31]),
    "seed": ([0, -1, 42, -5, 2**63 - 1, -(2**63)], [2**63, 1.5]),
    "speed": ([0.25, 1, 4], [0.2, 4.1, 0, -1, math.nan]),
}
GOOD = [(name, value) for name, (good, _) in NUMBERS.items() for value in good]
BAD = [(name, value) for name, (_, bad) in NUMBERS.items() for value in bad]
NOT_NUMBERS = [(name, value) for name in NUMBERS for value in (True, False, "1", [], {})]


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_a_number_in_range_is_taken(name: str, value: float) -> None:
    assert getattr(read(VoiceFields, {name: value}), name) == value


@pytest.mark.parametrize(("name", "value"), BAD + NOT_NUMBERS)
def test_anything_else_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(VoiceFields, {name: value})
    assert caught.value.param == name
    assert caught.value.message.startswith(f"{name} must be a")
    assert "not " in caught.value.message


@pytest.mark.parametrize("name", VoiceFields.model_fields)
def test_null_is_absent(name: str) -> None:
    assert read(VoiceFields, {name: None}) == VoiceFields()


def test_unknown_fields_are_ignored() -> None:
    assert read(VoiceFields, {"shoe_size": 44}) == VoiceFields()


@pytest.mark.parametrize("name", ["do_sample", "subtalker_do_sample"])
@pytest.mark.parametrize("value", [0, 1, "true", "false", 0.5])
def test_switches_are_true_or_false(name: str, value: object) -> None:
    assert getattr(read(VoiceFields, {name: False}), name) is False
    with pytest.raises(InvalidRequest, match=f"{name} must be true or false"):
        read(VoiceFields, {name: value})


@pytest.mark.parametrize(
    ("body", "voice"),
    [
        ({"voice": "Heart"}, "Heart"),
        ({"voice": "  Heart "}, "Heart"),
        ({"voice": {"id": "Heart", "name": "x", "extra": 1}}, "Heart"),
        ({"speaker": "Heart"}, "Heart"),
        ({"voice": "Heart", "speaker": "Other"}, "Heart"),
        ({"voice": None, "speaker": "Other"}, "Other"),
        ({"voice": ""}, None),
        ({}, None),
    ],
)
def test_a_voice_is_a_name_or_an_object(body: dict[str, object], voice: str | None) -> None:
    assert read(VoiceFields, body).voice == voice


@pytest.mark.parametrize("value", [{"name": "x"}, {"id": ""}, {"id": 3}, 3, True, [], "x" * 257])
def test_other_voices_are_refused(value: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(VoiceFields, {"voice": value})
    assert caught.value.param == "voice"


@pytest.mark.parametrize("value", ["", "   ", "None", " None "])
def test_blank_instructions_and_the_word_none_are_absent(value: str) -> None:
    assert read(VoiceFields, {"instructions": value}).instructions is None


def test_instructions_have_a_limit() -> None:
    assert read(VoiceFields, {"instructions": "x" * 500}).instructions == "x" * 500
    with pytest.raises(InvalidRequest, match="instructions must have at most 500 characters"):
        read(VoiceFields, {"instructions": "x" * 501})
    with pytest.raises(InvalidRequest, match="instructions must be a string"):
        read(VoiceFields, {"instructions": 5})


def test_clone_mode_names_its_choices() -> None:
    assert read(VoiceFields, {"clone_mode": "Speaker_Only"}).clone_mode == "speaker_only"
    with pytest.raises(
        InvalidRequest, match="clone_mode must be one of 'auto', 'speaker_only', not"
    ):
        read(VoiceFields, {"clone_mode": "icl"})


@pytest.mark.parametrize("body", [[], "x", 3, None])
def test_a_body_is_an_object(body: object) -> None:
    with pytest.raises(InvalidRequest, match="Expected a JSON object") as caught:
        read(VoiceFields, body)
    assert caught.value.param is None


def test_sampling_is_what_an_engine_takes() -> None:
    fields = read(SamplingFields, {"temperature": 0, "subtalker_top_k": 3, "do_sample": True})
    assert fields.sampling == Sampling(temperature=0.0, subtalker_top_k=3, do_sample=True)


@pytest.mark.parametrize(("seed", "chosen"), [(None, None), (-1, None), (0, 0), (7, 7)])
def test_minus_one_draws_a_seed(seed: int | None, chosen: int | None) -> None:
    assert read(SamplingFields, {"seed": seed}).chosen_seed == chosen


def test_a_long_value_is_not_quoted_whole() -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(VoiceFields, {"speed": "x" * 100_000})
    assert len(caught.value.message) < 150


def test_the_schema_shows_ranges() -> None:
    properties = VoiceFields.model_json_schema()["properties"]
    assert properties["speed"]["minimum"] == 0.25
    assert properties["top_p"]["maximum"] == 1
