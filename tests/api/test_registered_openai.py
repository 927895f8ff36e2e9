"""The official client registers voices and speaks with them, on the whole app."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
import soundfile
from support import Running, running

from phonate.engine.base import Speaker
from phonate.engine.scripted import DEFAULT_INFO, Emit, Hang, ScriptedEngine
from phonate.voices.starters import StarterVoices, bundled_folder

CLONING = replace(
    DEFAULT_INFO,
    model="scripted-base",
    speakers=(Speaker("vivian", "Vivian"),),
    default_speaker="vivian",
    can_clone=True,
    can_icl=True,
    embedding_dim=16,
)


def recording(seconds: float = 2.0, hz: float = 180.0) -> bytes:
    time = np.arange(int(seconds * 24_000)) / 24_000
    buffer = io.BytesIO()
    soundfile.write(buffer, 0.3 * np.sin(2 * np.pi * hz * time), 24_000, format="WAV")
    return buffer.getvalue()


def client_of(server: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.address}/v1", api_key="sk-x", max_retries=0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(ScriptedEngine(info=CLONING), voice_dir=str(tmp_path / "voices")) as found:
        yield found


@pytest.fixture
def client(server: Running) -> Iterator[openai.OpenAI]:
    with client_of(server) as found:
        yield found


def register(client: openai.OpenAI, name: str, hz: float = 180.0) -> str:
    """The client insists on a consent; ours may be any reference of the caller's own."""
    sample = recording(hz=hz)
    return client.audio.voices.create(name=name, audio_sample=sample, consent="on paper").id


def say(client: openai.OpenAI, voice: object, text: str = "Hello.") -> bytes:
    answer = client.audio.speech.create(
        model="tts-1",
        voice=voice,  # type: ignore[arg-type]
        input=text,
        response_format="pcm",
    )
    return answer.content


def test_consent_voice_speech_and_deletion(client: openai.OpenAI, server: Running) -> None:
    consent = client.audio.voice_consents.create(
        name="Anna", language="en-US", recording=("c.wav", recording(), "audio/wav")
    )
    voice = client.audio.voices.create(
        name="Großmutter", audio_sample=("a.wav", recording(), "audio/wav"), consent=consent.id
    )
    assert voice.object == "audio.voice"
    assert voice.name == "Großmutter"
    assert voice.created_at > 1_700_000_000
    for spelled in (voice.id, {"id": voice.id}, "GROSSMUTTER", {"id": "großmutter"}):
        assert say(client, spelled)
    references = [call.request.reference for call in server.engine.calls]
    assert references[0] is not None
    assert all(reference is references[0] for reference in references)
    assert [call.request.speaker for call in server.engine.calls] == [None] * 4
    with pytest.raises(openai.ConflictError):
        client.audio.voice_consents.delete(consent.id)
    assert client.audio.voices.delete(voice.id).deleted
    with pytest.raises(openai.BadRequestError, match="voice"):
        say(client, voice.id)
    with pytest.raises(openai.NotFoundError):
        client.audio.voices.delete(voice.id)
    assert client.audio.voice_consents.delete(consent.id).deleted


def test_the_client_pages_through_consents(client: openai.OpenAI) -> None:
    made = {
        client.audio.voice_consents.create(name=f"c{n}", language="de", recording=recording()).id
        for n in range(5)
    }
    first = client.audio.voice_consents.list(limit=2)
    assert len(first.data) == 2
    assert {consent.id for consent in first} == made, "iterating fetches the further pages"
    one = client.audio.voice_consents.retrieve(first.data[0].id)
    assert client.audio.voice_consents.update(one.id, name="New").name == "New"


def test_a_prompt_is_refused_not_ignored(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="not from a prompt") as caught:
        client.audio.voices.create(name="x", type="prompt", prompt="a calm old sailor")
    assert caught.value.code == "unsupported_operation"


def test_a_running_utterance_keeps_the_voice_it_began_with(tmp_path: Path) -> None:
    gate = Hang(until=threading.Event())
    engine = ScriptedEngine({"long": [Emit.tone(0.5), gate, Emit.tone(0.5)]}, CLONING)
    with running(engine, voice_dir=str(tmp_path)) as server, client_of(server) as client:
        voice = register(client, "Anna", 150)
        answers: list[bytes] = []
        talking = threading.Thread(target=lambda: answers.append(say(client, "Anna", "long")))
        talking.start()
        assert gate.reached.wait(10)
        client.audio.voices.delete(voice)
        gate.until.set()
        talking.join(10)
        assert len(answers[0]) / 48_000 == pytest.approx(1.0, abs=0.2)
        register(client, "Anna", 250)
        say(client, "Anna")
        old, new = (call.request.reference for call in engine.calls)
        assert old is not None
        assert new is not None
        assert not np.array_equal(old.embedding, new.embedding)


def test_replacing_changes_the_next_utterance(client: openai.OpenAI, server: Running) -> None:
    for hz in (150, 250):
        register(client, "Anna", hz)
        say(client, "anna")
    with pytest.raises(openai.BadRequestError, match="silent"):
        register(client, "Anna", 0)
    say(client, "ANNA")
    first, second, third = (call.request.reference for call in server.engine.calls)
    assert first is not second
    assert third is second, "a bad upload harms nothing"


def test_a_clone_needs_a_model_that_clones(tmp_path: Path) -> None:
    plain = replace(CLONING, can_clone=False, can_icl=False, embedding_dim=0)
    with (
        running(ScriptedEngine(info=plain), voice_dir=str(tmp_path)) as server,
        client_of(server) as client,
    ):
        register(client, "Anna")
        with pytest.raises(
            openai.BadRequestError, match="cannot speak with cloned voices"
        ) as caught:
            say(client, "Anna")
        assert caught.value.code == "unsupported_operation"


def test_starter_voices_speak_with_their_transcript(tmp_path: Path) -> None:
    engine = ScriptedEngine(info=CLONING)
    options = {"voice_dir": str(tmp_path), "starter_voices": True}
    with running(engine, **options) as server, client_of(server) as client:
        for entry in StarterVoices(bundled_folder()).entries().values():
            say(client, entry.value.name)
            reference = engine.calls[-1].request.reference
            assert reference is not None
            assert reference.text == entry.value.ref_text
            with pytest.raises(openai.ConflictError):
                client.audio.voices.delete(entry.id)
        listed = httpx.get(f"{server.address}/v1/audio/voices").json()["voices"]
        assert [voice["name"] for voice in listed if voice["kind"] == "starter"] == [
            "Lark",
            "Merle",
        ]


@pytest.mark.parametrize("name", ["../voice.json", "/etc/passwd", "a\0b", "%2e%2e%2fx"])
def test_speaking_with_a_path_reads_nothing(client: openai.OpenAI, name: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        say(client, name)
    assert caught.value.param == "voice"
