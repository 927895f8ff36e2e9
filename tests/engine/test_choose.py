"""What the options say reaches the engine that is opened."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from phonate.engine.choose import create_engine
from phonate.engine.models import resolve
from phonate.engine.qwen import engine, library_search
from phonate.settings import load


def test_scheduling_options_reach_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: dict[str, Any] = {}
    files = SimpleNamespace(talker="t.gguf", codec="c.gguf")
    monkeypatch.setattr(library_search, "find_library", lambda *_: "library")
    monkeypatch.setattr(
        resolve, "resolve", lambda *_, **__: SimpleNamespace(files=files, id="model")
    )
    monkeypatch.setattr(engine, "QwenEngine", lambda *_, **options: opened.update(options))
    flags = {
        "model": "0.6b-base", "cpu_threads": "3", "cpu_codec_threads": "2",
        "cpu_affinity": "0-2", "cpu_codec_affinity": "0x18", "cpu_stream_frames": "2",
    }  # fmt: skip
    create_engine(load(flags, {}).settings)
    options = opened["options"]
    assert (options.threads, options.codec_threads, options.stream_frames) == (3, 2, 2)
    assert (options.affinity, options.codec_affinity) == (0b111, 0b11000)
