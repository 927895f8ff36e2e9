"""The built-in voice behind the real server: what a fresh machine does."""

import httpx
import pytest
from support import decode, running

from phonate.engine.builtin.engine import BuiltinEngine


@pytest.fixture(scope="module")
def server():
    with running(BuiltinEngine()) as running_server:
        yield running_server


def ask(server, **body):
    return httpx.post(f"{server.address}/v1/audio/speech", json=body, timeout=60)


def seconds(answer):
    samples, rate = decode(answer.content)
    return len(samples) / rate


@pytest.mark.parametrize("format_", ["mp3", "opus", "aac", "flac", "wav"])
def test_it_speaks(server, format_):
    answer = ask(server, input="Hello there, this machine speaks.", response_format=format_)
    assert answer.status_code == 200
    assert 1.2 < seconds(answer) < 4


def test_a_probe_with_a_full_stop_is_answered_with_a_short_sound(server):
    answer = ask(server, input=".", response_format="wav")
    assert answer.status_code == 200
    assert 0.1 < seconds(answer) < 2


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("你好，世界。", "unsupported_language"),
        ("Привет, мир!", "unsupported_language"),
        ("مرحبا بالعالم", "unsupported_language"),
        ("🎉🎉🎉", None),
        ("\u200b\u200b", None),
    ],
)
def test_what_it_cannot_speak_is_a_400_that_says_so(server, text, code):
    answer = ask(server, input=text)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == "input"
    assert error["code"] == code
    if code:
        assert "english" in error["message"]
        assert "--model" in error["message"]


def test_mixed_text_speaks_what_it_can_and_says_what_it_could_not(server):
    answer = ask(server, input="Hello world. 你好。 Goodbye.", response_format="wav")
    assert answer.status_code == 200
    assert seconds(answer) > 1
    assert "%E4%BD%A0%E5%A5%BD" in answer.headers["x-unspoken-text"]


def test_a_plain_text_says_nothing_of_the_kind(server):
    assert "x-unspoken-text" not in ask(server, input="Hello.").headers


def test_the_same_seed_gives_the_same_bytes(server):
    first, again = (
        ask(server, input="Once more.", seed=7, response_format="pcm").content for _ in range(2)
    )
    assert first == again
    assert first != ask(server, input="Once more.", seed=8, response_format="pcm").content


def test_two_thousand_characters_without_punctuation_are_all_spoken(server):
    text = "alpha " + "river stone window garden " * 75 + "omega"
    answer = ask(server, input=text, response_format="pcm")
    assert answer.status_code == 200
    assert len(answer.content) / 48000 > len(text) * 0.05
