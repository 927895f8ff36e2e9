"""RealtimeTTS: its OpenAI engine, and the client it brings for its own Qwen server.

There is no sound card here: PyAudio is replaced by the two constants that the engine asks it for.
The engine reads a whole answer before it hands any on and cannot be interrupted, so there is
nothing to abort.
"""

import argparse
import io
import queue
import sys
import types

import numpy as np
import openai
import pytest
import soundfile

from conftest import SENTENCE, check_speech, decode, recording


@pytest.fixture
def engine(monkeypatch, base_url):
    monkeypatch.setitem(
        sys.modules, "pyaudio", types.SimpleNamespace(paInt16=8, paCustomFormat=65536)
    )
    monkeypatch.setenv("OPENAI_BASE_URL", base_url)
    from RealtimeTTS.engines.openai_engine import OpenAIEngine

    def make(**options):
        engine = OpenAIEngine(api_key="x", **options)
        engine.queue = queue.Queue()
        return engine

    return make


def heard(engine):
    return b"".join(engine.queue.get() for _ in range(engine.queue.qsize()))


def test_its_openai_engine_with_its_defaults(engine):
    """It sends `instructions: null`, and a voice of OpenAI's."""
    speaker = engine()
    assert speaker.synthesize(SENTENCE)
    check_speech(*decode(heard(speaker)))


def test_its_openai_engine_as_pcm(engine):
    speaker = engine(response_format="pcm", speed=1.5)
    assert speaker.synthesize(SENTENCE)
    samples = np.frombuffer(heard(speaker), "<i2")
    assert 1.2 < len(samples) / 24000 < 4


def test_an_error_is_the_openai_sdks(engine):
    with pytest.raises(openai.BadRequestError):
        engine(voice="nobody").synthesize(SENTENCE)


@pytest.fixture
def showcase(monkeypatch, tmp_path, stage):
    """`realtimetts-qwen-emotions --server URL --no-play`, after its download of references."""
    monkeypatch.delenv("REALTIMETTS_API_KEY", raising=False)
    from RealtimeTTS import qwen_emotions

    (tmp_path / "reference.wav").write_bytes(recording())
    entry = qwen_emotions.EmotionEntry(
        name="neutral", ref_audio=str(tmp_path / "reference.wav"), ref_text="What it says.",
        instruct="", speak_text=SENTENCE,
    )  # fmt: skip
    console = qwen_emotions.DemoConsole(stdout=io.StringIO(), stderr=io.StringIO())
    args = argparse.Namespace(
        server=stage.address, api_key_file=None, device="auto", text=None, language="English",
        seed=7, no_play=True, output_dir=tmp_path, console=console,
    )  # fmt: skip
    return lambda **changes: qwen_emotions.run_server(
        argparse.Namespace(**{**vars(args), **changes}), [entry]
    )


def test_the_client_of_its_qwen_server(showcase, tmp_path):
    """It reads the capabilities, registers a voice by `wav_b64`, and streams pcm in it."""
    (result,) = showcase()
    samples, rate = soundfile.read(tmp_path / "neutral.wav")
    assert rate == 24000
    assert len(samples) / rate == pytest.approx(result["audio_seconds"])
    check_speech(samples, rate)


def test_an_error_reaches_the_client_of_its_qwen_server(showcase):
    import urllib.error

    with pytest.raises(urllib.error.HTTPError) as caught:
        showcase(language="Klingon")
    assert caught.value.code == 400
