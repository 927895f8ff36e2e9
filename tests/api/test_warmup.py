"""What happens before the server says ready: an engine that notes it, and a real process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from support import running

from phonate.engine.scripted import Emit, ScriptedEngine
from phonate.errors import SetupError

SERVER = Path(__file__).parent.parent / "scripted_server.py"


def test_a_voice_speaks_into_the_void_first():
    engine = ScriptedEngine(lambda request: [Emit.tone(20)])
    options = {"startup_warmup_voice": "ton", "startup_warmup_tokens": 4}
    with running(engine, **options) as server:
        assert engine.n_warm_ups == 1
        (call,) = engine.calls
        assert call.request.text == "Warm up the speech engine."
        assert call.request.speaker == "ton"
        assert call.request.max_new_tokens == 4
        assert call.done.is_set()
        assert httpx.get(f"{server.address}/ready").status_code == 200


def test_its_text_can_be_chosen_and_without_a_voice_nothing_is_said():
    engine = ScriptedEngine()
    with running(engine, startup_warmup_voice="tone", startup_warmup_text="Guten Tag."):
        assert engine.texts == ["Guten Tag."]
    with running(ScriptedEngine()) as server:
        assert server.engine.texts == []


def test_a_missing_voice_fails_the_start_by_its_name():
    with (
        pytest.raises(SetupError, match="--startup-warmup-voice 'nobody'"),
        running(ScriptedEngine(), startup_warmup_voice="nobody"),
    ):
        pass


@pytest.mark.parametrize("option", [["--startup-warmup-voice", "nobody"],
                                    ["--startup-warmup-voice", "tone",
                                     "--startup-warmup-text", "Fail now."]])  # fmt: skip
def test_the_process_says_so_in_one_line_and_never_says_ready(tmp_path, option):
    done = subprocess.run(
        [sys.executable, str(SERVER), "serve", "--port", "0", "--voice-dir", str(tmp_path),
         "--log-level", "warning", *option],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "listens" not in done.stdout
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"phonate: --startup-warmup-voice {option[1]!r}: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("prepared", [True, False])
def test_voices_of_routes_are_prepared(prepared, monkeypatch):
    from phonate.api import warmup

    asked = []

    async def note(state, voice):
        asked.append(voice)

    monkeypatch.setattr(warmup, "_prepare", note)
    options = {"voice_language_route": ["tone:de=ton"], "startup_warmup_routes": prepared}
    with running(ScriptedEngine(), **options):
        assert asked == (["ton"] if prepared else [])
