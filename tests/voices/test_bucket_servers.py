"""A bucket from outside: two servers that share it, the commands, the doctor, a missing extra."""

from __future__ import annotations

import io
import sys
import time
from dataclasses import replace

import httpx
import numpy as np
import pytest
import soundfile
from s3_world import World
from support import Running, running
from typer.testing import CliRunner

from phonate.cli_voices import voices
from phonate.doctor import _voices
from phonate.engine.base import Speaker
from phonate.engine.scripted import DEFAULT_INFO, ScriptedEngine
from phonate.errors import SetupError
from phonate.settings import load
from phonate.voices import bucket_shelf
from phonate.voices.store import VoiceStore

CLONING = replace(
    DEFAULT_INFO,
    model="scripted-base",
    speakers=(Speaker("vivian", "Vivian"),),
    default_speaker="vivian",
    can_clone=True,
    can_icl=True,
    embedding_dim=16,
)


def wav(seconds: float = 1.5) -> bytes:
    time = np.arange(int(seconds * 24_000)) / 24_000
    buffer = io.BytesIO()
    soundfile.write(buffer, 0.3 * np.sin(2 * np.pi * 180 * time), 24_000, format="WAV")
    return buffer.getvalue()


def say(server: Running, voice: str) -> httpx.Response:
    body = {"model": "tts-1", "input": "Hello.", "voice": voice, "response_format": "pcm"}
    return httpx.post(f"{server.address}/v1/audio/speech", json=body)


def listed(server: Running) -> list[str]:
    answer = httpx.get(f"{server.address}/v1/audio/voices").json()
    return [v["name"] for v in answer["voices"] if v["kind"] == "registered"]


def test_a_voice_registered_on_one_server_speaks_on_the_other(world: World) -> None:
    place = str(world.bucket)
    with running(ScriptedEngine(info=CLONING), voice_dir=place) as one:
        world.be("machine-b")
        with running(ScriptedEngine(info=CLONING), voice_dir=place) as two:
            assert say(two, "Anna").status_code == 400
            made = httpx.post(
                f"{one.address}/v1/audio/voices",
                data={"name": "Anna", "consent": "on paper"},
                files={"audio_sample": ("a.wav", wav())},
            )
            assert made.status_code == 200, made.text
            began = time.monotonic()
            answer = say(two, "anna")
            assert answer.status_code == 200, answer.text
            assert time.monotonic() - began < 5
            assert two.engine.calls[-1].request.reference is not None
            assert len(answer.content) > 1000
            assert listed(two) == listed(one) == ["Anna"]

            assert httpx.delete(f"{two.address}/v1/audio/voices/Anna").status_code == 200
            while listed(one):
                assert time.monotonic() - began < 10
                time.sleep(0.05)
            assert say(one, "Anna").status_code == 400

            with world.proxy.spoiling(503):
                refused = httpx.post(
                    f"{one.address}/v1/audio/voices",
                    data={"name": "Bob", "consent": "on paper"},
                    files={"audio_sample": ("a.wav", wav())},
                    timeout=30,
                )
                assert refused.status_code == 503
                assert refused.headers["retry-after"] == "5"
                assert say(one, "vivian").status_code == 200
                metrics = httpx.get(f"{one.address}/metrics").text
                assert "phonate_voices_reachable 0.0" in metrics


def test_a_consent_is_kept_for_a_voice_that_another_server_has_just_registered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_shelf.BucketShelf, "_follow", lambda *args: None)
    place = str(world.bucket)
    with running(ScriptedEngine(info=CLONING), voice_dir=place) as one:
        world.be("machine-b")
        with running(ScriptedEngine(info=CLONING), voice_dir=place) as two:
            sample = ("a.wav", wav())
            consent = httpx.post(
                f"{one.address}/v1/audio/voice_consents",
                data={"name": "Anna", "language": "en-US"},
                files={"recording": sample},
            ).json()["id"]
            made = httpx.post(
                f"{two.address}/v1/audio/voices",
                data={"name": "Anna", "consent": consent},
                files={"audio_sample": sample},
            )
            assert made.status_code == 200, made.text
            kept = httpx.delete(f"{one.address}/v1/audio/voice_consents/{consent}")
            assert kept.status_code == 409, kept.text
            httpx.delete(f"{two.address}/v1/audio/voices/Anna")
            gone = httpx.delete(f"{one.address}/v1/audio/voice_consents/{consent}")
            assert gone.status_code == 200
    left = world.sizes()
    assert left == {"index/voice.00000001.json": 2, "index/voice.00000002.json": 0}


def test_the_commands_work_on_a_bucket(world: World) -> None:
    recording = world.folder.parent / "anna.wav"
    recording.write_bytes(wav())

    def run(*words: object) -> str:
        arguments = [*map(str, words), "--voice-dir", str(world.bucket)]
        result = CliRunner().invoke(voices, arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    assert run("list") == "no voices\n"
    run("add", "Anna", recording)
    world.be("machine-b")
    assert "Anna" in run("list")
    file = world.folder.parent / "out.jsonl"
    run("export", file)
    run("remove", "Anna")
    run("import", file)
    assert [voice.name for voice in VoiceStore(world.bucket).voices()] == ["Anna"]


def test_the_doctor_looks_into_the_bucket(world: World) -> None:
    settings = load({"voice_dir": str(world.bucket)}, {}).settings
    finding = _voices(settings)
    assert finding.ok
    assert finding.state == f"0 in {world.bucket}, 0 problems"
    with world.proxy.spoiling(403):
        finding = _voices(settings)
        assert not finding.ok
        assert "AccessDenied" in (finding.remedy or "")
    world.be("machine-b")
    with world.proxy.spoiling(403):
        assert _voices(settings).state == f"{world.bucket} cannot be used"


def test_without_the_extra_the_command_that_installs_it_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(SetupError, match=r"pip install 'phonate\[s3\]'"):
        VoiceStore(world.bucket)
