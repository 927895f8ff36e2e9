"""The engine's processes find `isolated_engines` on their path; the tests here find those of the
engines that they run again."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent.parent / "builtin")]


@pytest.fixture(autouse=True, scope="session")
def factories_on_the_path() -> Iterator[None]:
    before = os.environ.get("PYTHONPATH")
    folder = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, before]))
    yield
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before
