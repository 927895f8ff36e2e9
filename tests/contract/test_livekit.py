"""LiveKit agents: sse by default for the newer models, plain audio for tts-1."""

import numpy as np
import pytest
from livekit.agents import APIConnectionError, APIConnectOptions, APIStatusError
from livekit.plugins import openai as lk

from conftest import ENDLESS, SENTENCE, check_speech

OPTIONS = APIConnectOptions(max_retry=0, timeout=30)


async def hear(base_url, text=SENTENCE, **options):
    tts = lk.TTS(base_url=base_url, api_key="x", **options)
    pcm = b""
    try:
        async with tts.synthesize(text, conn_options=OPTIONS) as stream:
            async for audio in stream:
                pcm += bytes(audio.frame.data)
    finally:
        await tts.aclose()
    return np.frombuffer(pcm, np.int16)


async def test_its_defaults(base_url):
    check_speech(await hear(base_url), 24000)


@pytest.mark.parametrize("format_", ["pcm", "wav", "mp3", "opus", "flac", "aac"])
@pytest.mark.parametrize("model", ["gpt-4o-mini-tts", "tts-1"])
async def test_every_format_as_events_and_as_audio(base_url, format_, model):
    check_speech(await hear(base_url, model=model, response_format=format_), 24000)


async def test_an_error_is_an_error(base_url):
    with pytest.raises(APIStatusError) as caught:
        await hear(base_url, voice="nobody")
    assert caught.value.status_code == 400


@pytest.mark.parametrize("model", ["gpt-4o-mini-tts", "tts-1"])
async def test_a_stream_that_is_cut_is_an_error(stage, model):
    with pytest.raises(APIConnectionError):
        await hear(stage.base_url, f"cut {SENTENCE}", model=model)


@pytest.mark.parametrize("model", ["gpt-4o-mini-tts", "tts-1"])
async def test_closing_the_stream_stops_the_engine(stage, model):
    tts = lk.TTS(base_url=stage.base_url, api_key="x", model=model, response_format="pcm")
    try:
        stream = tts.synthesize(ENDLESS, conn_options=OPTIONS)
        await anext(stream)
        async with stage.stops_async():
            await stream.aclose()
    finally:
        await tts.aclose()
