"""What README and docs show is run: every block marked `run`, against a real server.

    ```sh run            with the built-in voice; the folder holds anna.wav, a person's recording
    ```sh run clone      the same on an engine that can clone
    ```python run
    ```json answer       after a `run` block: the answer has these fields, of these types
    ```json answer exact   ... and these values

docs/CLIENTS.md needs the clients: tests/contract/test_examples.py runs it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support import decode, running

from phonate.engine.builtin.engine import BuiltinEngine
from phonate.engine.scripted import DEFAULT_INFO, ScriptedEngine

ROOT = Path(__file__).parent.parent
ELSEWHERE = {"CLIENTS.md"}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"^```(?P<kind>sh|python) run(?P<clone> clone)?\n(?P<text>.*?)^```\n"
    r"(?:\n```json answer(?P<exact> exact)?\n(?P<answer>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
ADDRESS = "http://127.0.0.1:8080"


BLOCKS = [
    pytest.param(found, id=f"{page.stem}-{n}")
    for page in PAGES
    if page.name not in ELSEWHERE
    for n, found in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8")))
]


@pytest.fixture(scope="module")
def voice():
    with running(BuiltinEngine(pico=False)) as server:
        yield server


@pytest.fixture(scope="module")
def cloning():
    info = replace(DEFAULT_INFO, can_clone=True, can_icl=True, embedding_dim=16)
    with running(ScriptedEngine(info=info)) as server:
        yield server


@pytest.mark.parametrize("block", BLOCKS)
def test_it_runs(block, voice, cloning, tmp_path):
    server = cloning if block["clone"] else voice
    text = block["text"].replace(ADDRESS, server.address)
    text = text.replace(ADDRESS.replace("http", "ws"), server.address.replace("http", "ws"))
    text = text.replace(".venv/bin/phonate", f"{sys.executable} -m phonate")
    shutil.copy(ROOT / "voices" / "lark" / "reference.wav", tmp_path / "anna.wav")
    if block["kind"] == "sh" and "curl" in text and shutil.which("curl") is None:
        pytest.skip("curl is not installed here")
    command = [sys.executable, "-c"] if block["kind"] == "python" else ["sh", "-ec"]
    done = subprocess.run(
        [*command, text], cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env={**os.environ, "PHONATE_VOICE_DIR": str(tmp_path / "voices")}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name in set(re.findall(r"(?<![$\w@-])[\w-]+\.(?:mp3|wav|opus|flac|aac)\b", text)):
        samples, rate = decode((tmp_path / name).read_bytes())
        assert 0.3 < len(samples) / rate < 30
    if block["answer"]:
        compare(json.loads(block["answer"]), json.loads(done.stdout), exact=bool(block["exact"]))


def compare(shown, real, *, exact, where="answer"):
    if isinstance(shown, dict):
        for key, value in shown.items():
            assert key in real, f"{where}.{key}"
            compare(value, real[key], exact=exact, where=f"{where}.{key}")
    elif isinstance(shown, list):
        compare(shown[0], real[0], exact=exact, where=f"{where}[0]")
    elif exact:
        assert shown == real, where
    else:
        assert isinstance(real, type(shown)), where


def test_there_is_something_to_run():
    names = [param.id.rpartition("-")[0] for param in BLOCKS]
    assert {"README", "API", "PROTOCOL"} <= set(names)


NEEDS_MORE = re.compile(
    r"make \w|\.venv/bin/phonate (serve|pull|dev|convert)\b|some-model --stream", re.ASCII
)
"""What a test cannot run: it installs, serves for ever, downloads, or is only a name. Its options
are checked by test_readme."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_is_run_or_cannot_be(page):
    """No example is left out by forgetting its mark."""
    text = page.read_text(encoding="utf-8")
    for kind, block in re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        assert kind not in ("python", "js"), block
        lines = block.replace("\\\n", " ").splitlines() if kind == "sh" else []
        for line in filter(None, lines):
            assert NEEDS_MORE.match(line), line
