"""SillyTavern's server route for OpenAI-compatible voices, as its page calls it. The route reads
the whole answer and does not notice that its own client left, so there is nothing to abort."""

import httpx
import pytest

from conftest import SENTENCE, check_speech, decode


@pytest.fixture(scope="module")
def tavern(node, tmp_path_factory):
    process = node.start("sillytavern.mjs", tmp_path_factory.mktemp("tavern"))
    for line in process.stdout:
        if line.startswith("port "):
            break
    else:
        raise AssertionError("SillyTavern did not start")
    yield f"http://127.0.0.1:{int(line.split()[1])}"
    process.communicate(timeout=10)  # its input ends, and so does it


def speak(tavern, address, **fields):
    """The fields that the page sends. There is no secret stored: the Bearer is empty."""
    body = {
        "provider_endpoint": f"{address}/v1/audio/speech", "model": "tts-1", "input": SENTENCE,
        "voice": "alloy", "response_format": "mp3", "speed": 1, **fields,
    }  # fmt: skip
    return httpx.post(f"{tavern}/api/openai/custom/generate-voice", json=body, timeout=60)


def test_the_page_gets_mp3(tavern, address):
    answer = speak(tavern, address)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "audio/mpeg"
    check_speech(*decode(answer.content))


@pytest.mark.parametrize("voice", ["echo", "fable", "onyx", "nova", "shimmer"])
def test_its_other_voices_are_known(tavern, address, voice):
    check_speech(*decode(speak(tavern, address, voice=voice).content))


def test_an_error_reaches_the_page_with_our_words(tavern, address):
    answer = speak(tavern, address, voice="nobody")
    assert answer.status_code == 500  # all that the route knows
    assert answer.json()["error"]["param"] == "voice"


def test_a_missing_key_reaches_the_page(tavern, guarded):
    assert speak(tavern, guarded).json()["error"]["type"] == "authentication_error"


def test_a_stream_that_is_cut_is_an_error(tavern, stage):
    assert speak(tavern, stage.address, input=f"cut {SENTENCE}").status_code == 500
