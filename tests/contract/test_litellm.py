"""LiteLLM's `speech` and `aspeech` with the provider `openai`."""

import asyncio

import litellm
import openai
import pytest

from conftest import ENDLESS, SENTENCE, check_speech, decode


def test_speech(base_url):
    answer = litellm.speech(
        model="openai/tts-1", voice="alloy", input=SENTENCE, api_base=base_url, api_key="x",
        response_format="wav",
    )  # fmt: skip
    check_speech(*decode(answer.content))


async def test_aspeech(base_url):
    answer = await litellm.aspeech(
        model="openai/gpt-4o-mini-tts", voice="coral", input=SENTENCE, api_base=base_url,
        api_key="x", response_format="mp3",
    )  # fmt: skip
    check_speech(*decode(answer.content))


def test_an_error(base_url):
    with pytest.raises(openai.BadRequestError):  # LiteLLM's own is a child of it
        litellm.speech(
            model="openai/tts-1", voice="nobody", input=SENTENCE, api_base=base_url, api_key="x",
            max_retries=0,
        )  # fmt: skip


def test_a_stream_that_is_cut_is_an_error(stage):
    with pytest.raises(openai.APIError):
        litellm.speech(
            model="openai/tts-1", voice="alloy", input=f"cut {SENTENCE}", api_base=stage.base_url,
            api_key="x", max_retries=0,
        )  # fmt: skip


async def test_cancelling_the_task_stops_the_engine(stage):
    task = asyncio.ensure_future(
        litellm.aspeech(
            model="openai/tts-1", voice="alloy", input=ENDLESS, api_base=stage.base_url,
            api_key="x", max_retries=0,
        )
    )  # fmt: skip
    async with stage.stops_async():
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
