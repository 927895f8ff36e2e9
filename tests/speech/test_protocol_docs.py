"""docs/PROTOCOL.md names every event that there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from phonate.engine.base import FinishReason
from phonate.speech import pipeline, session, vllm_session
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


@pytest.mark.parametrize("event", sorted(CLIENT_EVENTS))
def test_fields_of_client_events(event: str) -> None:
    row = next(
        line for line in TEXT.splitlines() if re.match(rf"\| `{event}`|\| .*, `{event}` \|", line)
    )
    if event != "config":  # its fields are many, and looked for above
        for field in CLIENT_EVENTS[event].model_fields:
            assert f"`{field}`" in row, field


def words_of_vllm_omni() -> set[str]:
    """Names of events in the other shell of the session."""
    source = Path(str(vllm_session.__file__)).read_text(encoding="utf-8")
    return set(re.findall(r'"((?:session|input|audio)\.\w+)"', source))


def test_the_search_for_vllm_omnis_events_finds_them() -> None:
    assert {"session.config", "input.text", "audio.start", "session.done"} <= words_of_vllm_omni()


@pytest.mark.parametrize("event", sorted(words_of_vllm_omni()))
def test_vllm_omnis_events(event: str) -> None:
    assert f"`{event}`" in TEXT


@pytest.mark.parametrize("reason", [*get_args(FinishReason), "error", "silent"])
def test_reasons_of_a_fragments_end(reason: str) -> None:
    assert f"`{reason}`" in TEXT


def test_what_every_event_has() -> None:
    assert "Every event has `session_id` and `request_id`" in TEXT
    for name in ("audio", "limits", "voice", "language", "seed"):
        assert f"`{name}`" in next(x for x in TEXT.splitlines() if x.startswith("| `ready`"))


@pytest.mark.parametrize("code", CloseCode)
def test_close_codes(code: CloseCode) -> None:
    assert f"| {code.value} |" in TEXT


def test_limits() -> None:
    limits = SessionLimits()
    assert f"{limits.max_frame_bytes // 1024} KiB a frame" in TEXT
    assert f"{limits.max_text_bytes // 2**20} MiB of text" in TEXT
    assert f"within {limits.config_timeout_s:g} s" in TEXT
