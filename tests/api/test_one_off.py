"""Cloning for one request, against a scripted engine that can clone."""

import base64
import io
from dataclasses import replace

import httpx
import numpy as np
import pytest
import soundfile
from support import running

from phonate.engine.scripted import DEFAULT_INFO, ScriptedEngine

CLONER = replace(DEFAULT_INFO, can_clone=True, can_icl=True, embedding_dim=8, takes_sampling=True)


def recording(seconds=3.0):
    t = np.arange(round(seconds * 16000)) / 16000
    sound = 0.3 * np.sin(2 * np.pi * 220 * t) * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * t))
    buffer = io.BytesIO()
    soundfile.write(buffer, sound, 16000, format="WAV", subtype="PCM_16")
    return base64.b64encode(buffer.getvalue()).decode()


@pytest.fixture
def server():
    with running(ScriptedEngine(info=CLONER)) as cloner:
        yield cloner


def ask(server, **body):
    body = {"input": "Hello there.", "response_format": "pcm", **body}
    return httpx.post(f"{server.address}/v1/audio/speech", json=body, timeout=30)


def test_a_recording_with_its_transcript(server):
    answer = ask(server, ref_audio=recording(), ref_text="What is said.", task_type="Base")
    assert answer.status_code == 200, answer.text
    request = server.engine.calls[0].request
    assert request.speaker is None
    assert request.reference.text == "What is said."
    assert request.reference.codes is not None
    n_samples, text = server.engine.extracted[0]
    assert n_samples >= 3 * 24000
    assert text == "What is said."


@pytest.mark.parametrize("only", [True, None])
def test_without_a_transcript_or_with_x_vector_only_it_is_the_x_vector(server, only):
    ask(server, ref_audio="data:audio/wav;base64," + recording(), x_vector_only_mode=only,
        ref_text="What is said." if only else None)  # fmt: skip
    reference = server.engine.calls[0].request.reference
    assert reference.codes is None
    assert reference.embedding.shape == (8,)


def test_an_embedding_of_the_clients_own(server):
    assert ask(server, speaker_embedding=[0.5] * 8).status_code == 200
    assert server.engine.calls[0].request.reference.embedding.tolist() == [0.5] * 8


@pytest.mark.parametrize(
    ("body", "param", "status"),
    [
        ({"ref_audio": "!!!"}, "ref_audio", 400),
        ({"ref_audio": ""}, "ref_audio", 400),
        ({"ref_audio": "file:///etc/passwd"}, "ref_audio", 400),
        ({"ref_audio": "http://127.0.0.1/a.wav"}, "ref_audio", 400),
        ({"ref_audio": "http://169.254.169.254/latest"}, "ref_audio", 400),
        ({"ref_audio": base64.b64encode(b"not audio at all").decode()}, "ref_audio", 415),
        ({"ref_audio": "Zoë"}, "ref_audio", 400),
        ({"ref_audio": recording(0.3)}, "ref_audio", 400),
        ({"ref_text": "alone"}, "ref_text", 400),
        ({"x_vector_only_mode": True}, "x_vector_only_mode", 400),
        ({"speaker_embedding": [0.5] * 7}, "speaker_embedding", 400),
        ({"speaker_embedding": []}, "speaker_embedding", 400),
        ({"speaker_embedding": ["a"] * 8}, "speaker_embedding", 400),
        ({"speaker_embedding": [True] * 8}, "speaker_embedding", 400),
        ({"speaker_embedding": [1e300] * 8}, "speaker_embedding", 400),
        ({"task_type": "VoiceDesign"}, "task_type", 400),
        ({"task_type": "Karaoke"}, "task_type", 400),
        ({"initial_codec_chunk_frames": 0}, "initial_codec_chunk_frames", 400),
    ],
)
def test_what_is_refused(server, body, param, status):
    answer = ask(server, **body)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["param"] == param
    assert server.engine.calls == []


def test_an_engine_that_cannot_clone_says_so(scripted):
    answer = ask(scripted, ref_audio=recording())
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "unsupported_operation"


def test_the_text_layout_and_the_first_packet_reach_the_engine(server):
    ask(server, non_streaming_mode=True, initial_codec_chunk_frames=2)
    ask(server, non_streaming_mode=False)
    first, second = (call.request for call in server.engine.calls)
    assert (first.text_layout, first.initial_codec_chunk_frames) == ("non_streaming", 2)
    assert second.text_layout == "streaming"


def test_the_operator_chooses_how_those_who_do_not_say_clone():
    with running(ScriptedEngine(info=CLONER), clone_mode="speaker_only") as server:
        ask(server, speaker_embedding=[0.5] * 8)
        ask(server, speaker_embedding=[0.5] * 8, clone_mode="auto")
        modes = [call.request.clone_mode for call in server.engine.calls]
    assert modes == ["speaker_only", "auto"]
