"""A real `phonate serve` with the built-in voice, for clients that live in another environment.

PHONATE_PYTHON is the interpreter that has phonate installed; `make contract` sets it.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import soundfile

SENTENCE = "The weather is lovely today, so let us go for a walk."
SENTENCE_S = (2.0, 6.0)
"""How long a person would take for it, roughly."""


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    command = [
        os.environ.get("PHONATE_PYTHON", sys.executable), "-m", "phonate", "serve", "--port", "0",
        "--voice-dir", str(tmp_path_factory.mktemp("voices")),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        for line in server.stdout:
            if found := re.search(r"listens on (\S+)", line):
                break
        else:
            raise AssertionError("the server did not start")
        yield found[1]
        server.terminate()


@pytest.fixture(scope="session")
def base_url(address: str) -> str:
    return f"{address}/v1"


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
    samples, rate = soundfile.read(io.BytesIO(data), dtype="float32")
    return samples, rate
