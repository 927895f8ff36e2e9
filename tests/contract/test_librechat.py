"""LibreChat, after what it is known to do: it speaks a message in parts
and plays the joined mp3s."""

import httpx

from conftest import decode

PARTS = ("The first part of the message.", "And here comes the second one.")


def speak(address, text, **fields):
    body = {"model": "tts-1", "voice": "alloy", "input": text, "response_format": "mp3", **fields}
    return (
        httpx.post(f"{address}/v1/audio/speech", json=body, timeout=60).raise_for_status().content
    )


def seconds(data):
    samples, rate = decode(data)
    return len(samples) / rate


def test_joined_mp3s_decode_to_the_sum_of_both(address):
    for fields in ({}, {"stream": False}):
        first, second = (speak(address, text, seed=1, **fields) for text in PARTS)
        both = seconds(first) + seconds(second)
        assert 2 < both < 8
        assert abs(seconds(first + second) - both) < 0.08
        assert (first + second).count(b"ID3") <= 2
