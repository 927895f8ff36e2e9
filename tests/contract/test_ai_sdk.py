"""Vercel's AI SDK: @ai-sdk/openai's speech model in generateSpeech."""

import pytest

from conftest import SENTENCE, check_speech, decode

SCRIPT = "ai_sdk.mjs"


@pytest.mark.parametrize("format_", ["default", "mp3", "opus", "aac", "flac", "wav"])
def test_speech_in_every_format(address, node, tmp_path, format_):
    said = node(SCRIPT, address, "speak", format_, tmp_path / "out")
    assert said["warnings"] == []
    assert said["type"].startswith("audio/")
    check_speech(*decode((tmp_path / "out").read_bytes()))


@pytest.mark.parametrize(
    ("model", "voice", "status", "word"),
    [("tts-1", "nobody", 400, "nobody"), ("whisper-1", "alloy", 404, "whisper-1")],
)
def test_a_refusal_is_the_sdks_own_error(address, node, model, voice, status, word):
    error = node(SCRIPT, address, "refused", model, voice)
    assert error["isOurs"]
    assert error["status"] == status
    assert word in error["message"]
    assert not error["retryable"]


def test_a_stream_that_is_cut_is_an_error(stage, node):
    assert node(SCRIPT, stage.address, "cut", f"cut {SENTENCE}")["isOurs"]


def test_abort_stops_the_engine(stage, node):
    assert node.aborts(SCRIPT, stage)["name"] == "AbortError"
