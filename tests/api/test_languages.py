"""Languages end to end, with the voices that ship."""

import base64
import importlib.util

import httpx
import pytest
from support import decode, running

from phonate.engine.builtin.engine import BuiltinEngine

GERMAN = "Guten Abend, ich habe die Informationen geprüft."
ENGLISH = "Good evening, I have checked the information for you."

pico = pytest.mark.skipif(
    importlib.util.find_spec("py_nanotts") is None, reason="py-nanotts has no wheel here"
)


@pytest.fixture(scope="module")
def server():
    with running(BuiltinEngine()) as running_server:
        yield running_server


@pytest.fixture(scope="module")
def english_only():
    with running(BuiltinEngine(pico=False)) as running_server:
        yield running_server


def ask(server, text, **body):
    body = {"input": text, "response_format": "wav", **body}
    return httpx.post(f"{server.address}/v1/audio/speech", json=body, timeout=60)


@pico
@pytest.mark.parametrize("voice", [None, "alloy", "heart"])
def test_a_german_text_is_spoken_by_the_german_voice_and_says_so(server, voice):
    answer = ask(server, GERMAN, voice=voice)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-voice"] == "pico-de"
    assert answer.headers["x-language"] == "german"
    samples, rate = decode(answer.content)
    assert 1.5 < len(samples) / rate < 8


@pico
@pytest.mark.parametrize(
    ("text", "voice"),
    [
        ("Le train pour Lyon a du retard aujourd'hui.", "pico-fr"),
        ("El tren a Sevilla llega hoy con retraso.", "pico-es"),
        ("Il treno per Firenze oggi è in ritardo.", "pico-it"),
        (ENGLISH, "heart"),
        ("Hm.", "heart"),
        ("12345", "heart"),
    ],
)
def test_each_language_has_its_voice(server, text, voice):
    assert ask(server, text).headers["x-voice"] == voice


@pico
def test_an_explicit_language_needs_no_identification(server):
    answer = ask(server, "Taxi!", language="de-AT")
    assert answer.headers["x-voice"] == "pico-de"
    assert ask(server, GERMAN, language="en").headers["x-voice"] == "heart"


@pico
def test_in_events_and_in_batches_too(server):
    assert ask(server, GERMAN, stream_format="sse").headers["x-voice"] == "pico-de"
    body = {"items": [{"input": GERMAN}, {"input": ENGLISH}], "response_format": "wav"}
    answer = httpx.post(f"{server.address}/v1/audio/speech/batch", json=body, timeout=60).json()
    lengths = [len(decode(base64.b64decode(r["audio_data"]))[0]) for r in answer["results"]]
    assert len(set(lengths)) == 2
    assert [r["voice"] for r in answer["results"]] == ["pico-de", "heart"]


@pico
def test_a_route_of_the_operators_comes_first():
    routes = ["heart:de=pico-gb"]
    with running(BuiltinEngine(), voice_language_route=routes) as server:
        answer = ask(server, GERMAN)
        # pico-gb speaks English only: the engine says so instead of reading German with it.
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "unsupported_language"


@pytest.mark.parametrize("language", ["japanese", "ja", "ru-RU", "klingon"])
def test_a_language_that_nobody_speaks_is_a_400_with_a_way_out(server, language):
    answer = ask(server, "Hello there.", language=language)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_language", "language")
    if language != "klingon":
        assert "english" in error["message"]
        assert "--model" in error["message"]


def test_without_the_other_voices_a_german_text_is_a_400_and_not_a_mumble(english_only):
    answer = ask(english_only, GERMAN)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_language", "input")
    assert "german" in error["message"]
    assert "--model" in error["message"]


@pytest.mark.parametrize("text", [ENGLISH, "Hm.", "Café, please.", "Bon voyage!", "12:30", "OK"])
def test_what_could_be_english_is_spoken(english_only, text):
    assert ask(english_only, text).status_code == 200


def test_identification_as_a_service(server):
    texts = [GERMAN, ENGLISH, "", "123", "こんにちは", "x" * 100_000, "Zeile\nnoch eine Zeile"]
    answer = httpx.post(
        f"{server.address}/v1/text/languages", json={"texts": texts, "fallback": "fr"}, timeout=30
    )
    results = answer.json()["results"]
    assert [r["language"] for r in results[:5]] == [
        "german", "english", "french", "french", "japanese",
    ]  # fmt: skip
    assert [r["accepted"] for r in results[:5]] == [True, True, False, False, True]
    assert results[0]["source"] == "model"
    assert results[4]["source"] == "script"
    assert results[0]["candidates"][0]["language"] == "german"


@pytest.mark.parametrize("texts", [None, [], ["x"] * 129, [1], {"a": 1}])
def test_texts_that_are_none(server, texts):
    answer = httpx.post(f"{server.address}/v1/text/languages", json={"texts": texts})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "texts"


def test_capabilities_say_what_is_spoken(english_only):
    told = httpx.get(f"{english_only.address}/v1/capabilities").json()
    assert told["languages"]["spoken"] == ["english"]
    assert len(told["languages"]["identified"]) == 10
    described = httpx.get(f"{english_only.address}/openapi.json").json()["paths"]
    for endpoint in told["endpoints"]:
        method, path = endpoint.split()
        if method != "WS" and path != "/":  # the page is no part of the schema
            matching = [known for known in described if _same(known, path)]
            assert matching, endpoint
            assert any(method.lower() in described[known] for known in matching), endpoint


def _same(known, path):
    """Parameters may have other names."""
    ours, theirs = known.split("/"), path.split("/")
    pairs = zip(ours, theirs, strict=False)
    return len(ours) == len(theirs) and all(a == b or a[:1] == b[:1] == "{" for a, b in pairs)
