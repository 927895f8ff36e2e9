"""The examples of docs/CLIENTS.md, each run as it stands. Programs leave a file `speech.*`;
settings are read as the client reads them, and the request that follows from them is sent."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest

from conftest import NODE_FOLDER, decode

PAGE = (Path(__file__).parents[2] / "docs" / "CLIENTS.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^## (.+?)\n.*?^```(\w+) run\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
STUB = "paInt16 = 8\npaCustomFormat = 65536\n"
"""PyAudio for RealtimeTTS where there is no sound card."""


def ids(language):
    return [pytest.param(text, id=name) for name, kind, text in EXAMPLES if kind in language]


@pytest.fixture
def program(address, tmp_path):
    def run(command, text, name):
        text = text.replace("http://127.0.0.1:8080", address)
        assert address in text
        (tmp_path / name).write_text(text)
        (tmp_path / "pyaudio.py").write_text(STUB)
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        subprocess.run([*command, name], cwd=tmp_path, env=environment, timeout=90, check=True)
        (file,) = tmp_path.glob("speech.*")
        return heard(file)

    return run


def heard(file):
    """Seconds of audible sound."""
    if file.suffix == ".pcm":
        samples, rate = np.frombuffer(file.read_bytes(), "<i2") / 32768, 24000
    else:
        samples, rate = decode(file.read_bytes())
    assert np.abs(samples).max() > 0.01
    return len(samples) / rate


@pytest.mark.parametrize("text", ids({"python"}))
def test_python(program, text):
    assert 0.7 < program([sys.executable], text, "example.py") < 4


@pytest.mark.parametrize("text", ids({"js"}))
def test_node(node, program, tmp_path, text):
    (tmp_path / "node_modules").symlink_to(NODE_FOLDER / "node_modules")
    assert 0.7 < program(["node"], text, "example.mjs") < 4


@pytest.mark.parametrize("text", ids({"sh"}))
def test_shell(program, text):
    assert 0.1 < program(["sh", "-e"], text, "example.sh") < 4


@pytest.mark.parametrize("text", ids({"json", "ini", "yaml"}))
def test_settings(address, tmp_path, text):
    """Whatever the file calls them: an address, a model, voices."""
    (url,) = re.findall(r"http://127\.0\.0\.1:8080[^\s\"]*", text)
    body = {"input": "Hello from a settings file.", "response_format": "mp3"}
    if url.endswith("/v1"):
        url += "/audio/speech"
    url = url.replace("http://127.0.0.1:8080", address)
    if "/vapi/" in url:
        request = {"type": "voice-request", "text": body["input"], "sampleRate": 24000}
        answer = httpx.post(url, json={"message": request}, timeout=60)
        (tmp_path / "speech.pcm").write_bytes(answer.raise_for_status().content)
        assert 0.7 < heard(tmp_path / "speech.pcm") < 4
        return
    (body["model"],) = re.findall(r"tts-1", text)
    listed = re.search(r"voices: (\[.*\])", text)
    for voice in json.loads(listed[1]) if listed else ["alloy"]:
        assert voice in text
        answer = httpx.post(url, json={**body, "voice": voice}, timeout=60).raise_for_status()
        (tmp_path / "speech.mp3").write_bytes(answer.content)
        assert 0.7 < heard(tmp_path / "speech.mp3") < 4
