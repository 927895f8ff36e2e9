"""Home Assistant, after what it is known to do: setting a text-to-speech service up speaks "." and
needs a status below 400 within 10 s."""

import time

import httpx
import numpy as np
import pytest

from conftest import SENTENCE, check_speech, decode


@pytest.mark.parametrize("format_", ["mp3", "opus", "aac", "flac", "wav", "pcm"])
def test_its_probe_is_answered_with_audio(address, format_):
    began = time.monotonic()
    answer = httpx.post(
        f"{address}/v1/audio/speech", timeout=10,
        json={"model": "tts-1", "voice": "shimmer", "input": ".", "response_format": format_},
    )  # fmt: skip
    assert answer.status_code < 400
    assert time.monotonic() - began < 10
    if format_ == "pcm":
        samples, rate = np.frombuffer(answer.content, "<i2"), 24000
    else:
        samples, rate = decode(answer.content)
    assert 0 < len(samples) / rate < 3


def test_then_it_speaks(address):
    answer = httpx.post(
        f"{address}/v1/audio/speech", timeout=60,
        json={"model": "tts-1", "voice": "shimmer", "input": SENTENCE, "speed": 1.0},
    )  # fmt: skip
    check_speech(*decode(answer.content))
