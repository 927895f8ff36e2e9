"""docs/PROTOCOL.md names every event that there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from phonate.speech import pipeline, session
from phonate.speech.session_events import CLIENT_EVENTS, CloseCode, Config, SessionLimits

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "docs" / "PROTOCOL.md").read_text(encoding="utf-8")


def said() -> set[str]:
    """Types of the events that the machine makes."""
    found: set[str] = set()
    for module in (session, pipeline):
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        found |= set(re.findall(r'_?say\(\s*"(\w+)"', source))
        found |= set(re.findall(r'(?:_about|self\.say),\s*(?:\w+(?:\.\w+)*,\s*)?"(\w+)"', source))
    return found | {"paused", "resumed"}


def test_the_search_for_events_finds_them() -> None:
    assert {"ready", "fragment_ready", "segment_started", "done", "error"} <= said()


@pytest.mark.parametrize("event", sorted(said()))
def test_server_events(event: str) -> None:
    assert f"`{event}`" in TEXT


@pytest.mark.parametrize("event", sorted(CLIENT_EVENTS))
def test_client_events(event: str) -> None:
    assert f"`{event}`" in TEXT


@pytest.mark.parametrize(
    "field", sorted({name for name in Config.model_fields if "subtalker" not in name})
)
def test_fields_of_config(field: str) -> None:
    sampling = {"do_sample", "top_k", "top_p", "repetition_penalty", "max_new_tokens"}
    assert f"`{field}`" in TEXT or field in sampling


@pytest.mark.parametrize("code", CloseCode)
def test_close_codes(code: CloseCode) -> None:
    assert f"| {code.value} |" in TEXT


def test_limits() -> None:
    limits = SessionLimits()
    assert f"{limits.max_frame_bytes // 1024} KiB a frame" in TEXT
    assert f"{limits.max_text_bytes // 2**20} MiB of text" in TEXT
    assert f"within {limits.config_timeout_s:g} s" in TEXT
