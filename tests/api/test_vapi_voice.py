"""POST /v1/vapi/voice: a second shape of the same request."""

import httpx
import numpy as np
import pytest
from support import pcm_floats


def ask(server, message, **params):
    return httpx.post(
        f"{server.address}/v1/vapi/voice", json={"message": message}, params=params, timeout=30
    )


def voice_request(**changes):
    return {"type": "voice-request", "text": "Hello there.", "sampleRate": 24000, **changes}


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 24000, 44100])
def test_the_answer_is_the_pcm_of_a_speech_request(scripted, rate):
    speech = httpx.post(
        f"{scripted.address}/v1/audio/speech", timeout=30,
        json={"input": "Hello there.", "response_format": "pcm", "sample_rate": rate, "seed": 1},
    )  # fmt: skip
    answer = ask(scripted, voice_request(sampleRate=rate))
    assert answer.headers["content-type"] == "audio/pcm"
    assert answer.headers["x-audio-sample-rate"] == str(rate)
    np.testing.assert_array_equal(pcm_floats(answer.content), pcm_floats(speech.content))


def test_voice_and_language_come_from_the_address(scripted):
    assert ask(scripted, voice_request(), voice="Ton").headers["x-voice"] == "ton"
    assert ask(scripted, voice_request(), language="de").headers["x-language"] == "german"


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({}, "message"),
        (voice_request(type="status-update"), "message"),
        (voice_request(text=None), "input"),
        (voice_request(text="  "), "input"),
        (voice_request(sampleRate=12345), "sample_rate"),
        (voice_request(sampleRate="24000"), "sample_rate"),
        ("hello", "message"),
        (None, "message"),
    ],
)
def test_what_is_wrong_is_named(scripted, message, param):
    answer = ask(scripted, message)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_an_absent_rate_is_24000(scripted):
    assert ask(scripted, voice_request(sampleRate=None)).headers["x-audio-sample-rate"] == "24000"
