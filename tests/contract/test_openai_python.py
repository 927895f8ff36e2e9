"""The OpenAI SDK for Python, whole, streamed, as events, synchronous and not."""

import asyncio

import httpx2
import numpy as np
import openai
import pytest

from conftest import ENDLESS, SENTENCE, check_speech, decode, recording


@pytest.fixture
def client(base_url):
    with openai.OpenAI(base_url=base_url, api_key="sk-x", max_retries=0) as client:
        yield client


@pytest.fixture
def staged(stage):
    with openai.OpenAI(base_url=stage.base_url, api_key="x", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("format_", ["mp3", "opus", "aac", "flac", "wav"])
@pytest.mark.parametrize("extra", [{}, {"stream": False}], ids=["streamed", "whole"])
def test_create(client, format_, extra):
    answer = client.audio.speech.create(
        model="tts-1", voice="alloy", input=SENTENCE, response_format=format_, extra_body=extra
    )
    check_speech(*decode(answer.content))


def test_streaming_pcm_with_the_newest_model_name(client):
    with client.audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts", voice={"id": "heart"}, input=SENTENCE, response_format="pcm",
        stream_format="audio",
    ) as answer:  # fmt: skip
        assert answer.request_id
        data = b"".join(answer.iter_bytes(1000))
    check_speech(np.frombuffer(data, "<i2"), 24000)


async def test_the_async_client_to_a_file(base_url, tmp_path):
    async with (
        openai.AsyncOpenAI(base_url=base_url, api_key="x") as client,
        client.audio.speech.with_streaming_response.create(
            model="tts-1-hd", voice="nova", input=SENTENCE, response_format="wav", speed=1.0
        ) as answer,
    ):
        await answer.stream_to_file(tmp_path / "out.wav")
    check_speech(*decode((tmp_path / "out.wav").read_bytes()))


def test_errors_are_the_clients_own(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.audio.speech.create(model="tts-1", voice="nobody", input=SENTENCE)
    assert caught.value.param == "voice"
    assert caught.value.code == "voice_not_found"
    with pytest.raises(openai.NotFoundError):
        client.audio.speech.create(model="whisper-1", voice="alloy", input=SENTENCE)


def test_models_and_voices(client):
    assert "tts-1" in [model.id for model in client.models.list().data]
    made = client.audio.voice_consents.create(
        language="en-US", name="Me", recording=("r.wav", recording(), "audio/wav")
    )
    assert made.id
    voice = client.audio.voices.create(
        audio_sample=("s.wav", recording(), "audio/wav"), consent=made.id, name="Zoë"
    )
    assert voice.name == "Zoë"
    client.audio.voices.delete(voice.id)


def test_no_key_is_an_authentication_error(guarded):
    with (
        openai.OpenAI(base_url=f"{guarded}/v1", api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.audio.speech.create(model="tts-1", voice="alloy", input=SENTENCE)


def test_an_engine_that_fails_is_a_server_error(staged):
    with pytest.raises(openai.InternalServerError) as caught:
        staged.audio.speech.create(model="tts-1", voice="alloy", input="broken")
    assert caught.value.status_code == 502


def test_a_stream_that_is_cut_is_an_error(staged):
    request = {"model": "tts-1", "voice": "alloy", "input": f"cut {SENTENCE}"}
    with pytest.raises(openai.APIConnectionError):
        staged.audio.speech.create(**request)
    with (
        pytest.raises(httpx2.RemoteProtocolError),
        staged.audio.speech.with_streaming_response.create(**request) as answer,
    ):
        answer.read()


def test_closing_the_stream_stops_the_engine(staged, stage):
    with staged.audio.speech.with_streaming_response.create(
        model="tts-1", voice="alloy", input=ENDLESS, response_format="pcm"
    ) as answer:
        pieces = answer.iter_bytes(1024)
        assert next(pieces)
        with stage.stops():
            answer.close()


async def test_cancelling_the_task_stops_the_engine(stage):
    async with openai.AsyncOpenAI(base_url=stage.base_url, api_key="x", max_retries=0) as client:
        task = asyncio.ensure_future(
            client.audio.speech.create(model="tts-1", voice="alloy", input=ENDLESS)
        )
        async with stage.stops_async():
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
