from dataclasses import replace

import pytest

from phonate.engine.base import Speaker
from phonate.engine.scripted import DEFAULT_INFO
from phonate.errors import SetupError
from phonate.speech.routes import Routes, make_routes, parse_routes

KNOWN = {"anna", "otto", "tone", "ton", "a:b"}


def routes(*options, info=DEFAULT_INFO):
    return make_routes(info, options, KNOWN.__contains__)


def test_a_language_goes_to_its_voice_and_others_stay():
    table = routes("tone:de=anna", "tone:pt-BR=otto")
    assert table.voice_for("Tone", "german") == "anna"
    assert table.voice_for("tone", "portuguese") == "otto"
    assert table.voice_for("tone", "english") == "tone"
    assert table.voice_for("other", "german") == "other"


@pytest.mark.parametrize("star", ["*", "default", "DEFAULT"])
def test_a_default_route_takes_the_rest(star):
    table = routes("tone:de=anna", f"tone:{star}=otto")
    assert table.voice_for("tone", "german") == "anna"
    assert table.voice_for("tone", "french") == "otto"
    assert table.voice_for("tone", None) == "otto"


def test_split_at_the_first_equals_and_the_last_colon():
    assert parse_routes(["a:b:de=x=y"]) == {"a:b": {"german": "x=y"}}


@pytest.mark.parametrize(
    "option", ["tone", "tone=anna", "tone:de", ":de=anna", "tone:=anna", "tone:de=", "tone:xx=anna"]
)
def test_a_wrong_route_quotes_the_flag(option):
    with pytest.raises(SetupError) as caught:
        routes(option)
    assert "--voice-language-route" in caught.value.message
    assert option in caught.value.message


def test_the_same_language_twice_is_an_error():
    with pytest.raises(SetupError, match="german already"):
        routes("tone:de=anna", "tone:German=otto")


def test_a_route_to_nobody_fails_by_name():
    with pytest.raises(SetupError, match="nobody"):
        routes("tone:de=nobody")


def test_speakers_of_one_language_each_are_routes_by_themselves():
    info = replace(
        DEFAULT_INFO,
        one_language_per_speaker=True,
        speakers=(
            Speaker("tone", "Tone", "english"),
            Speaker("gb", "GB", "english"),
            Speaker("ton", "Ton", "german"),
            Speaker("ton2", "Ton 2", "german"),
        ),
    )
    table = make_routes(info, [], KNOWN.__contains__)
    assert table.voice_for("tone", "german") == "ton"
    assert table.voice_for("tone", "english") == "tone"
    assert table.voice_for("ton", "english") == "ton"
    assert make_routes(info, ["tone:de=anna"], KNOWN.__contains__).voice_for("tone", "german") == (
        "anna"
    )


def test_no_routes_at_all():
    assert Routes({}).voice_for("tone", "german") == "tone"
    assert not Routes({}).has("tone")
