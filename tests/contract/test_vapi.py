"""Vapi, a hosted service, after its description of a custom voice: a POST with
`message.type` "voice-request", `message.text` and `message.sampleRate`, answered with 16-bit mono
PCM at that rate and nothing else."""

import httpx
import numpy as np
import pytest

from conftest import ENDLESS, KEY, SENTENCE, check_speech


def ask(address, headers=None, params=None, **message):
    body = {
        "message": {
            "type": "voice-request", "text": SENTENCE, "sampleRate": 24000,
            "timestamp": 1_760_000_000_000, "call": {"id": "x"}, "assistant": {}, **message,
        }
    }  # fmt: skip
    return httpx.post(
        f"{address}/v1/vapi/voice", json=body, headers=headers, params=params, timeout=60
    )


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 24000])
def test_a_voice_request_is_answered_with_raw_pcm(address, rate):
    answer = ask(address, sampleRate=rate)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "audio/pcm"
    assert len(answer.content) % 2 == 0
    assert not answer.content.startswith(b"RIFF")
    check_speech(np.frombuffer(answer.content, "<i2"), rate)


def test_the_voice_stands_in_the_address(stage):
    assert ask(stage.address, params={"voice": "ton"}).headers["x-voice"] == "ton"


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"type": "end-of-call-report"}, "message"),
        ({"text": " "}, "input"),
        ({"sampleRate": 7}, "sample_rate"),
    ],
)
def test_an_error_names_the_field(address, message, param):
    answer = ask(address, **message)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_it_needs_the_key(guarded):
    assert ask(guarded).status_code == 401
    assert ask(guarded, headers={"Authorization": f"Bearer {KEY}"}).status_code == 200


def test_a_caller_who_hangs_up_stops_the_engine(stage):
    body = {"message": {"type": "voice-request", "text": ENDLESS, "sampleRate": 16000}}
    with httpx.stream("POST", f"{stage.address}/v1/vapi/voice", json=body) as answer:
        pieces = answer.iter_bytes()
        assert next(pieces)
        with stage.stops():
            answer.close()
