"""The server on a native library and a tiny random model: frames are checked, not beauty."""

import httpx
import pytest
from support import pcm_floats, running

from phonate.engine.choose import create_engine
from phonate.settings import load


@pytest.fixture(scope="module")
def server(library, model_files):
    files = model_files("base")
    options = {
        "talker": str(files.talker),
        "codec": str(files.codec),
        "library": str(library.path),
        "synthesis_timeout": "600",
    }
    with running(create_engine(load(options, {}).settings), **options) as qwen:
        yield qwen


def ask(server, **body):
    body = {"input": "Hello there.", "response_format": "pcm", "seed": 11, **body}
    return httpx.post(f"{server.address}/v1/audio/speech", json=body, timeout=600)


def test_it_speaks_as_many_frames_as_it_is_given(server):
    answer = ask(server, max_new_tokens=4, stream=False)
    assert answer.status_code == 200, answer.text
    frames = int(answer.headers["x-usage-output-tokens"])
    assert 1 <= frames <= 4
    assert answer.headers["x-finish-reason"] == "length"
    # Random weights do not begin with silence, so nothing is trimmed but the pre-roll's worth.
    assert len(pcm_floats(answer.content)) == pytest.approx(frames * 1920, abs=1920)


def test_a_seed_replays_over_http(server):
    first = ask(server, max_new_tokens=3)
    assert first.content == ask(server, max_new_tokens=3).content


def test_sampling_reaches_the_model(server):
    greedy = [
        ask(server, max_new_tokens=3, temperature=0, subtalker_temperature=0, seed=s).content
        for s in (1, 2)
    ]
    assert greedy[0] == greedy[1]


def test_what_a_base_model_cannot_do_is_said(server):
    answer = ask(server, instructions="Whisper.")
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "unsupported_operation"
    assert ask(server, voice="vivian").status_code == 400
