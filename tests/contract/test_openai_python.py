import numpy as np
import openai
import pytest

from conftest import SENTENCE, check_speech, decode


@pytest.fixture
def client(base_url):
    with openai.OpenAI(base_url=base_url, api_key="sk-x", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("format_", ["mp3", "opus", "flac", "wav"])
@pytest.mark.parametrize("extra", [{}, {"stream": False}], ids=["streamed", "whole"])
def test_create(client, format_, extra):
    if (format_, extra) == ("flac", {}):
        pytest.skip("libsndfile cannot read a FLAC stream that does not say how long it is")
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
        language="en-US", name="Me", recording=("r.wav", _recording(), "audio/wav")
    )
    assert made.id
    voice = client.audio.voices.create(
        audio_sample=("s.wav", _recording(), "audio/wav"), consent=made.id, name="Zoë"
    )
    assert voice.name == "Zoë"
    client.audio.voices.delete(voice.id)


def _recording() -> bytes:
    import io

    import soundfile

    t = np.arange(24000 * 3) / 24000
    sound = 0.3 * np.sin(2 * np.pi * 200 * t) * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * t))
    buffer = io.BytesIO()
    soundfile.write(buffer, sound, 24000, format="WAV", subtype="PCM_16")
    return buffer.getvalue()
