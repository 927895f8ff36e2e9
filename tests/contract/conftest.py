"""Real servers for clients that live in another environment.

`address` is `phonate serve` with the built-in voice, `guarded` the same with a key, `stage` one
whose engine can be made to go on for ever or to fail. PHONATE_PYTHON is the interpreter that has
phonate installed; `make contract` sets it.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile

HERE = Path(__file__).parent
NODE_FOLDER = HERE / "node"
KEY = "sk-contract"

SENTENCE = "The weather is lovely today, so let us go for a walk."
SENTENCE_S = (2.0, 6.0)
"""How long a person would take for it, roughly."""
ENDLESS = "endless " + "word " * 400
"""Long enough for the runaway guard to leave it alone for a while."""
IDLE_WITHIN_S = 1.0


@contextlib.contextmanager
def _server(*arguments: str) -> Iterator[str]:
    command = [os.environ.get("PHONATE_PYTHON", sys.executable), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            for line in server.stdout:
                if found := re.search(r"listens on (\S+)", line):
                    break
            else:
                raise AssertionError("the server did not start")
            yield found[1]
        finally:
            server.terminate()


def _serve(folder: Path, *options: str) -> contextlib.AbstractContextManager[str]:
    return _server(
        "-m",
        "phonate",
        "serve",
        "--port",
        "0",
        "--voice-dir",
        str(folder),
        "--log-level",
        "warning",
        *options,
    )


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with _serve(tmp_path_factory.mktemp("voices")) as found:
        yield found


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with _serve(tmp_path_factory.mktemp("voices"), "--api-key", KEY) as found:
        yield found


@pytest.fixture(scope="session")
def base_url(address: str) -> str:
    return f"{address}/v1"


@dataclass
class Stage:
    address: str

    @property
    def base_url(self) -> str:
        return f"{self.address}/v1"

    def health(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.address}/health", timeout=5) as answer:
            return json.load(answer)

    def n_gone(self) -> float:
        """Utterances that ended because their client was gone."""
        with urllib.request.urlopen(f"{self.address}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        found = re.search(r'phonate_utterances_cut_total\{cause="client_gone"[^}]*\} (\S+)', text)
        return float(found[1]) if found else 0.0

    def wait(self, active: int, within_s: float) -> None:
        until = time.monotonic() + within_s
        while (seen := self.health()["active_requests"]) != active:
            assert time.monotonic() < until, f"{seen} active requests after {within_s} s"
            time.sleep(0.01)

    @contextlib.asynccontextmanager
    async def stops_async(self) -> AsyncIterator[None]:
        """`stops`, for a client on the test's own loop."""
        await asyncio.to_thread(self.wait, 1, 10)
        before = self.n_gone()
        yield
        await asyncio.to_thread(self.wait, 0, IDLE_WITHIN_S)
        assert self.n_gone() == before + 1

    @contextlib.contextmanager
    def stops(self) -> Iterator[None]:
        """The client speaks an endless text by now, and leaves in this block: the engine stops."""
        self.wait(active=1, within_s=10)
        before = self.n_gone()
        yield
        self.wait(active=0, within_s=IDLE_WITHIN_S)
        assert self.n_gone() == before + 1


@pytest.fixture(scope="session")
def _stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with _server(str(HERE / "stage.py"), str(tmp_path_factory.mktemp("voices"))) as found:
        yield Stage(found)


@pytest.fixture
def stage(_stage: Stage) -> Iterator[Stage]:
    yield _stage
    _stage.wait(active=0, within_s=15)


class Node:
    """Runs scripts of the folder `node`; what they print as JSON comes back."""

    def start(self, script: str, *arguments: object) -> subprocess.Popen[str]:
        command = ["node", str(NODE_FOLDER / script), *map(str, arguments)]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __call__(self, script: str, *arguments: object) -> Any:
        process = self.start(script, *arguments)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
        return json.loads(output.splitlines()[-1])

    def aborts(self, script: str, stage: Stage) -> Any:
        """Speaks endlessly, then aborts, without ending the process: the engine has to stop."""
        process = self.start(script, stage.address, "abort", ENDLESS)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "speaking\n"
            with stage.stops():
                print(file=process.stdin)
            assert process.poll() is None
            said = json.loads(process.stdout.readline())
            process.communicate("\n", timeout=10)
        finally:
            process.kill()
        return said


@pytest.fixture(scope="session")
def node() -> Node:
    if shutil.which("node") is None:
        pytest.skip("Node (20 or newer) is not installed here")
    if not (NODE_FOLDER / "node_modules").is_dir():
        pytest.fail(f"run `npm ci --ignore-scripts` in {NODE_FOLDER} (`make contract` does)")
    return Node()


def check_speech(samples: np.ndarray, rate: int) -> None:
    """Float or int16 mono: as long as the sentence, audible, and without a click."""
    samples = np.asarray(samples, dtype=np.float64)
    if np.abs(samples).max() > 2:
        samples = samples / 32768
    low, high = SENTENCE_S
    assert low < len(samples) / rate < high
    assert np.sqrt(np.mean(samples**2)) > 0.01
    # Speech at 24 kHz moves by less than half of full scale from one sample to the next; a header
    # or a lost byte in the middle of the samples does not.
    assert np.abs(np.diff(samples)).max() < 0.5


def decode(data: bytes) -> tuple[np.ndarray, int]:
    """By libsndfile; by FFmpeg what that cannot read (AAC, and a streamed FLAC, whose header does
    not say how long it is)."""
    try:
        return soundfile.read(io.BytesIO(data), dtype="float32")
    except (soundfile.LibsndfileError, ValueError):
        with av.open(io.BytesIO(data)) as container:
            rate = container.streams.audio[0].rate
            resampler = av.AudioResampler("flt", "mono", rate)
            frames = [x for frame in container.decode(audio=0) for x in resampler.resample(frame)]
        return np.concatenate([frame.to_ndarray()[0] for frame in frames]), rate


def recording(seconds: float = 3.0) -> bytes:
    """A WAV that can be registered as a voice."""
    t = np.arange(round(24000 * seconds)) / 24000
    sound = 0.3 * np.sin(2 * np.pi * 200 * t) * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * t))
    buffer = io.BytesIO()
    soundfile.write(buffer, sound, 24000, format="WAV", subtype="PCM_16")
    return buffer.getvalue()
