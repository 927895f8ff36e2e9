"""The official client against a real server: what most people will do first."""

import concurrent.futures
import struct

import httpx
import numpy as np
import openai
import pytest
from support import decode, loudest_hz, pcm_floats

from phonate.engine.scripted import ScriptedEngine, duration_of, frequency_of

TEXT = "Hello there, this is a test."


@pytest.fixture
def client(scripted):
    with openai.OpenAI(base_url=f"{scripted.address}/v1", api_key="sk-x", max_retries=0) as client:
        yield client


def check_tone(samples, rate, text=TEXT):
    assert len(samples) / rate == pytest.approx(duration_of(text), abs=0.08)
    assert loudest_hz(samples, rate) == pytest.approx(frequency_of(text), abs=3)


@pytest.mark.parametrize("format_", ["mp3", "wav", "flac", "opus"])
def test_streamed(client, format_):
    answer = client.audio.speech.create(
        model="tts-1", voice="alloy", input=TEXT, response_format=format_
    )
    check_tone(*decode(answer.content))


def test_mp3_is_the_default(client):
    raw = client.audio.speech.with_raw_response.create(model="tts-1", voice="alloy", input=TEXT)
    assert raw.headers["content-type"] == "audio/mpeg"
    assert raw.content[:2] in (b"\xff\xf3", b"\xff\xfb", b"\xff\xf2", b"\xff\xfa")
    check_tone(*decode(raw.content))


@pytest.mark.parametrize("format_", ["mp3", "wav", "flac", "opus"])
def test_whole(client, format_):
    raw = client.audio.speech.with_raw_response.create(
        model="tts-1", voice="alloy", input=TEXT, response_format=format_,
        extra_body={"stream": False},
    )  # fmt: skip
    assert int(raw.headers["content-length"]) == len(raw.content)
    check_tone(*decode(raw.content))


def test_pcm(client):
    with client.audio.speech.with_streaming_response.create(
        model="tts-1", voice="alloy", input=TEXT, response_format="pcm"
    ) as answer:
        assert answer.headers["content-type"] == "audio/pcm"
        assert answer.headers["x-audio-encoding"] == "s16le"
        assert answer.headers["x-audio-sample-rate"] == "24000"
        data = b"".join(answer.iter_bytes())
    check_tone(pcm_floats(data), 24000)


def test_a_streamed_wav_has_one_header_of_unknown_size_and_a_whole_one_exact_sizes(client):
    def get(stream):
        return client.audio.speech.create(
            model="tts-1", voice="alloy", input=TEXT, response_format="wav",
            extra_body=stream,
        ).content  # fmt: skip

    streamed, whole = get({}), get({"stream": False})
    assert streamed.count(b"RIFF") == whole.count(b"RIFF") == 1
    assert struct.unpack_from("<I", streamed, 4) == struct.unpack_from("<I", streamed, 40)
    assert struct.unpack_from("<I", streamed, 40) == (0xFFFFFFFF,)
    assert whole[36:40] == b"data"
    assert struct.unpack_from("<I", whole, 40) == (len(whole) - 44,)
    assert struct.unpack_from("<I", whole, 4) == (len(whole) - 8,)
    assert streamed[44:] == whole[44:]


def test_sse(client):
    with client.audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts", voice="alloy", input=TEXT, stream_format="sse",
        response_format="pcm",
    ) as answer:  # fmt: skip
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line.startswith("data: ")]
    import base64
    import json

    events = [json.loads(line[6:]) for line in lines]
    assert {e["type"] for e in events[:-1]} == {"speech.audio.delta"}
    assert events[-1]["type"] == "speech.audio.done"
    usage = events[-1]["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > 0
    deltas = [base64.b64decode(e["audio"]) for e in events[:-1]]
    assert all(len(d) % 2 == 0 for d in deltas)
    check_tone(pcm_floats(b"".join(deltas)), 24000)


def test_errors_arrive_as_the_clients_own_exceptions(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.audio.speech.create(model="tts-1", voice="nobody", input=TEXT)
    assert caught.value.param == "voice"
    assert "tone" in caught.value.message
    with pytest.raises(openai.NotFoundError) as caught:
        client.audio.speech.create(model="gpt-5", voice="alloy", input=TEXT)
    assert caught.value.code == "model_not_found"
    assert caught.value.request_id.startswith("req_")


def test_sixteen_at_once_get_sixteen_different_right_answers():
    from support import running

    texts = [
        f"Sentence number {i} of sixteen, each with its own tone." + "x" * i for i in range(16)
    ]
    with (
        running(ScriptedEngine(), max_queued_requests="16") as server,
        concurrent.futures.ThreadPoolExecutor(16) as pool,
    ):

        def ask(text):
            body = {"input": text, "response_format": "pcm"}
            answer = httpx.post(f"{server.address}/v1/audio/speech", json=body, timeout=60)
            assert answer.status_code == 200, answer.text
            return pcm_floats(answer.content)

        for text, samples in zip(texts, pool.map(ask, texts), strict=True):
            check_tone(samples, 24000, text)
        assert server.engine.max_in_flight == 1
    assert len({round(frequency_of(t)) for t in texts}) == 16


def test_the_client_lists_models(client):
    ids = [model.id for model in client.models.list()]
    assert ids[0] == "scripted"
    assert "tts-1" in ids
    assert client.models.retrieve("tts-1").id == "tts-1"


def test_no_samples_are_lost_or_made_up(client):
    data = client.audio.speech.create(
        model="tts-1", voice="tone", input=TEXT, response_format="pcm"
    ).content
    assert abs(len(data) // 2 - duration_of(TEXT) * 24000) <= 0.02 * 24000
    assert np.abs(pcm_floats(data)).max() > 0.2
