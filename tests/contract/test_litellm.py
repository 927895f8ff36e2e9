import litellm
import openai
import pytest

from conftest import SENTENCE, check_speech, decode


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
