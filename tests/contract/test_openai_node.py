"""The OpenAI SDK for JavaScript, in Node."""

import numpy as np
import pytest

from conftest import SENTENCE, check_speech, decode

SCRIPT = "openai.mjs"
TYPES = {
    "mp3": "audio/mpeg", "opus": "audio/ogg", "aac": "audio/aac", "flac": "audio/flac",
    "wav": "audio/wav",
}  # fmt: skip


@pytest.mark.parametrize("format_", TYPES)
def test_speech_in_every_format(address, node, tmp_path, format_):
    said = node(SCRIPT, address, "speak", format_, tmp_path / "out")
    assert said["type"] == TYPES[format_]
    assert said["id"]
    check_speech(*decode((tmp_path / "out").read_bytes()))


def test_events(address, node, tmp_path):
    last = node(SCRIPT, address, "events", tmp_path / "out.pcm")
    assert last["type"] == "speech.audio.done"
    assert last["usage"]["input_tokens"] > 0
    check_speech(np.frombuffer((tmp_path / "out.pcm").read_bytes(), "<i2"), 24000)


def test_models(address, node):
    assert "tts-1" in node(SCRIPT, address, "models")


@pytest.mark.parametrize(
    ("fields", "class_", "param"),
    [
        ('{"voice":"nobody"}', "BadRequestError", "voice"),
        ('{"speed":9}', "BadRequestError", "speed"),
        ('{"model":"whisper-1"}', "NotFoundError", "model"),
    ],
)
def test_a_refusal_is_the_sdks_own_error(address, node, fields, class_, param):
    error = node(SCRIPT, address, "refused", fields)
    assert (error["class"], error["param"]) == (class_, param)
    assert error["isOurs"]
    assert error["id"]


def test_no_key_is_an_authentication_error(guarded, node):
    assert node(SCRIPT, guarded, "refused", "{}")["class"] == "AuthenticationError"


def test_an_engine_that_fails_is_a_server_error(stage, node):
    error = node(SCRIPT, stage.address, "refused", '{"input":"broken"}')
    assert (error["class"], error["status"]) == ("InternalServerError", 502)


def test_a_stream_that_is_cut_is_an_error(stage, node):
    assert "bytes" not in node(SCRIPT, stage.address, "cut", f"cut {SENTENCE}")


def test_abort_stops_the_engine(stage, node):
    assert node.aborts(SCRIPT, stage)["name"] == "AbortError"
