"""Voices and consents over HTTP, on the app's own envelope."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import struct
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile
from fastapi import FastAPI
from starlette.testclient import TestClient

from phonate.api import consents, envelope, registered_voices
from phonate.api.traffic import Traffic
from phonate.api.voice_desk import open_desk
from phonate.engine.base import EngineInfo, Reference, Samples, Speaker
from phonate.engine.scripted import DEFAULT_INFO, ScriptedEngine
from phonate.errors import EngineFailure
from phonate.speech.encoding import encode_in_turn
from phonate.speech.service import Limits, SpeechService
from phonate.speech.shaping import SoundOptions

CLONING = replace(
    DEFAULT_INFO,
    model="scripted-base",
    speakers=(Speaker("vivian", "Vivian"),),
    can_clone=True,
    can_icl=True,
    embedding_dim=16,
)


class BrokenEngine(ScriptedEngine):
    """Encodes until told not to."""

    broken = False

    def extract_voice(self, audio: Samples, text: str | None) -> Reference:
        if self.broken:
            raise EngineFailure("The engine gave up on this recording.")
        return super().extract_voice(audio, text)


class Server(TestClient):
    engine: BrokenEngine
    root: Path

    def files(self) -> set[str]:
        paths = (p for p in self.root.rglob("*") if p.is_file())
        return {str(p.relative_to(self.root)) for p in paths if p.name not in (".lock", ".changes")}

    def reference(self, name: str) -> Reference:
        return self.app.state.voice_desk.library.reference_for(name)


@contextlib.contextmanager
def serving(root: Path, info: EngineInfo = CLONING) -> Iterator[Server]:
    engine = BrokenEngine(info=info)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = SpeechService(engine, Limits(), SoundOptions())
        encode = encode_in_turn(service, asyncio.get_running_loop())
        with open_desk(root, info, encode, max_voices=5) as desk:
            app.state.voice_desk = desk
            yield
        await service.close()

    app = FastAPI(lifespan=lifespan)
    envelope.install(app)
    app.include_router(registered_voices.router)
    app.include_router(consents.router)
    app.add_middleware(envelope.RequestContext, traffic=Traffic())
    with Server(app) as client:
        client.engine, client.root = engine, root
        yield client


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path / "voices") as client:
        yield client


def speechlike(seconds: float = 2.0, rate: int = 24_000) -> np.ndarray:
    time = np.arange(int(seconds * rate)) / rate
    return (0.3 * np.sin(2 * np.pi * 180 * time) * (0.6 + 0.4 * np.sin(20 * time))).astype(
        np.float32
    )


def wav(samples: np.ndarray | None = None, rate: int = 24_000) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, speechlike() if samples is None else samples, rate, format="WAV")
    return buffer.getvalue()


def encoded(container: str, codec: str) -> bytes:
    """Two seconds of stereo at 48 kHz."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container) as output:
        stream = output.add_stream(codec, rate=48_000, layout="stereo")
        mono = speechlike(2.0, 48_000)
        frame = av.AudioFrame.from_ndarray(
            np.stack([mono, mono]).astype(np.float32), format="fltp", layout="stereo"
        )
        frame.sample_rate = 48_000
        resampler = av.AudioResampler(
            stream.format.name, "stereo", 48_000, stream.frame_size or None
        )
        for piece in (*resampler.resample(frame), *resampler.resample(None)):
            output.mux(stream.encode(piece))
        output.mux(stream.encode(None))
    return buffer.getvalue()


def upload(server: Server, name: str, data: bytes, filename: str = "a.wav", **fields: str) -> Any:
    return server.post(
        "/v1/audio/voices", data={"name": name, **fields}, files={"audio_sample": (filename, data)}
    )


def refused(answer: Any, status: int, param: str | None) -> str:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param, error
    assert answer.headers["x-request-id"]
    return str(error["message"])


# --- registering


def test_a_json_upload_is_a_voice(server: Server) -> None:
    body = {
        "name": " Großmutter ",
        "wav_b64": base64.b64encode(wav()).decode(),
        "ref_text": "Guten Tag.",
        "language": "de",
        "description": None,
        "unknown": {"field": 1},
    }
    answer = server.post("/v1/audio/voices", json=body)
    assert answer.status_code == 200, answer.text
    made = answer.json()
    assert made.pop("status") == "registered"
    assert made["object"] == "audio.voice"
    assert made["name"] == "Großmutter"
    assert made["kind"] == "registered"
    assert made["language"] == "german"
    assert isinstance(made["created_at"], int)
    assert "description" not in made
    assert "warning" not in made
    assert str(server.root) not in answer.text
    assert server.reference("GROSSMUTTER").text == "Guten Tag."
    assert server.engine.extracted == [(2 * 24_000 + 12_000, "Guten Tag.")]
    assert server.get(f"/v1/audio/voices/{made['id']}").json() == made
    assert server.get("/v1/audio/voices/großmutter").json() == made


@pytest.mark.parametrize(
    ("container", "codec"),
    [
        ("wav", "pcm_s16le"),
        ("mp3", "libmp3lame"),
        ("ogg", "libopus"),
        ("flac", "flac"),
        ("adts", "aac"),
        ("ipod", "aac"),
        ("mp4", "aac"),
        ("webm", "libopus"),
    ],
)
def test_every_format_is_taken_whatever_the_name_says(
    server: Server, container: str, codec: str
) -> None:
    answer = upload(server, "Anna", encoded(container, codec), "voice.txt")
    assert answer.status_code == 200, answer.text
    ((n_samples, text),) = server.engine.extracted
    assert abs(n_samples / 24_000 - 2) < 0.15
    assert text is None


def test_latents_and_embeddings(server: Server) -> None:
    spk = struct.pack("<16f", *range(1, 17))
    body = {
        "name": "Lat",
        "spk_b64": base64.b64encode(spk).decode(),
        "rvq_b64": base64.b64encode(bytes(44)).decode(),
        "ref_text": "Hello.",
    }
    assert server.post("/v1/audio/voices", json=body).status_code == 200
    form = {"name": "Emb", "speaker_embedding": str(list(range(1, 17))), "consent": "on paper"}
    # Without a file a client still may send multipart.
    answer = server.post("/v1/audio/voices", files={k: (None, v) for k, v in form.items()})
    assert answer.status_code == 200, answer.text
    assert answer.json()["consent"] == "on paper"
    codes = server.reference("lat").codes
    assert codes is not None
    assert codes.shape == (2, 16)
    assert server.reference("emb").embedding.tolist() == list(range(1, 17))
    wrong = {"name": "Bad", "speaker_embedding": [1.0] * 15}
    message = refused(server.post("/v1/audio/voices", json=wrong), 400, "speaker_embedding")
    assert "16" in message
    foreign = {"name": "Bad", "speaker_embedding": [1.0] * 16, "language": "klingon"}
    refused(server.post("/v1/audio/voices", json=foreign), 400, "language")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", 400),
        (b"this is a text file", 415),
        (bytes(10 * 2**20 + 1), 413),
        (wav(speechlike(0.2)), 400),
        (wav(speechlike(40)), 400),
        (wav(np.zeros(48_000)), 400),
        (wav(np.clip(speechlike() * 20, -1, 1)), 400),
        (wav()[:60_000], 400),
        (b"ffconcat version 1.0\nfile /etc/passwd\n", 415),
        (b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", 415),
    ],
)
def test_a_bad_recording_is_named_and_the_old_voice_still_speaks(
    server: Server, data: bytes, status: int
) -> None:
    upload(server, "Anna", wav())
    before, files = server.reference("Anna"), server.files()
    for name in ("anna", "Bob"):
        refused(upload(server, name, data), status, "audio_sample")
    assert server.reference("Anna") is before
    assert server.files() == files


def test_an_engine_that_gives_up_harms_nothing(server: Server) -> None:
    upload(server, "Anna", wav())
    before, files = server.reference("Anna"), server.files()
    server.engine.broken = True
    refused(upload(server, "Anna", wav(speechlike(3))), 502, None)
    assert server.reference("Anna") is before
    assert server.files() == files
    server.engine.broken = False
    assert upload(server, "Bob", wav()).status_code == 200, "the slot was given back"


def test_replacing_takes_effect_and_keeps_the_id(server: Server) -> None:
    first = upload(server, "Anna", wav(), ref_text="one").json()
    old = server.reference("Anna")
    second = upload(server, "ANNA", wav(speechlike(3)), ref_text="two").json()
    assert second["id"] == first["id"]
    assert server.reference("anna").text == "two"
    assert old.text == "one", "whoever began with the old one keeps it"
    assert len(server.files()) == 3, "manifest, recording, latents"


def test_limits_and_conflicts(server: Server) -> None:
    assert "built-in" in refused(upload(server, "VIVIAN", wav()), 409, "name")
    for n in range(5):
        assert upload(server, f"v{n}", wav()).status_code == 200
    assert "most allowed is 5" in refused(upload(server, "v5", wav()), 409, None)


def test_an_engine_that_cannot_clone_stores_and_says_so(tmp_path: Path) -> None:
    with serving(tmp_path, replace(CLONING, can_clone=False, embedding_dim=0)) as server:
        answer = upload(server, "Anna", wav())
        assert answer.status_code == 200
        assert "cannot speak with cloned voices" in answer.json()["warning"]
        assert server.engine.extracted == []
    with serving(tmp_path) as server:
        assert server.reference("Anna") is not None


def test_voices_survive_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        upload(server, "Anna", wav())
        made = server.get("/v1/audio/voices/anna").json()
    with serving(tmp_path) as server:
        assert server.get("/v1/audio/voices/Anna").json() == made
        assert server.reference("Anna") is not None
        assert server.engine.extracted == [], "and are not encoded again"


# --- names


BAD_NAMES = ["..", ".", "../voice.json", "/etc/passwd", "/etc/no-such", "a\\b", "a\0b", "%2e%2e%2f"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_are_paths_get_the_same_words_everywhere(server: Server, name: str) -> None:
    one = refused(upload(server, name, wav()), 400, "name")
    two = refused(
        server.post("/v1/audio/voices", json={"name": name, "speaker_embedding": [1] * 16}),
        400,
        "name",
    )
    assert one == two
    assert name not in one or name in (".", "..")
    assert server.files() == set()


@pytest.mark.parametrize(
    "path",
    [
        "..%2fvoice.json", "%2Fetc%2Fpasswd", "%2Fetc%2Fno-such", "a%5Cb", "a%00b",
        "%252e%252e%252f", "%2e%2e%2f%2e%2e", "a%2Fb", "%20",
    ],
)  # fmt: skip
def test_encoded_names_that_are_paths_get_the_same_words(server: Server, path: str) -> None:
    (server.root / "voice.json").write_text("{}")
    for method in ("GET", "DELETE"):
        message = refused(server.request(method, f"/v1/audio/voices/{path}"), 400, "voice")
        assert "etc" not in message
    assert (server.root / "voice.json").exists()


# --- deleting


def test_deleting_leaves_nothing(server: Server) -> None:
    made = upload(server, "Anna", wav(), ref_text="secret words").json()
    answer = server.delete("/v1/audio/voices/anna")
    assert answer.json() == {
        "id": made["id"], "object": "audio.voice", "deleted": True, "status": "deleted",
    }  # fmt: skip
    assert server.files() == set()
    for method in ("GET", "DELETE"):
        refused(server.request(method, f"/v1/audio/voices/{made['id']}"), 404, "voice")
    assert upload(server, "Bob", wav()).status_code == 200
    bob = server.get("/v1/audio/voices/Bob").json()
    assert server.delete(f"/v1/audio/voices/{bob['id']}").status_code == 200
    assert "comes with the server" in refused(
        server.delete("/v1/audio/voices/vivian"), 409, "voice"
    )


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("text/plain", b"hello", 415),
        ("application/x-www-form-urlencoded", b"name=Anna", 415),
        ("application/json", b"{", 400),
        ("application/json", b"[]", 400),
        ("application/json", b'"x"', 400),
        ("application/json", b"[" * 100_000, 400),
        ("application/json", b"\xff\xfe", 400),
        ("multipart/form-data", b"no boundary", 400),
        ("multipart/form-data; boundary=x", b"--x\r\nbroken", 400),
    ],
)
def test_bodies_that_are_none(server: Server, content_type: str, body: bytes, status: int) -> None:
    answer = server.post("/v1/audio/voices", content=body, headers={"Content-Type": content_type})
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["message"]


# --- consents


def consent(server: Server, name: str = "Anna", **more: Any) -> Any:
    fields = {"name": name, "language": "en-US", **more}
    return server.post(
        "/v1/audio/voice_consents", data=fields, files={"recording": ("c.wav", wav())}
    )


def test_a_consent_is_kept_as_it_was_sent_and_found_again(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        made = consent(server).json()
        assert set(made) == {"id", "object", "name", "language", "created_at"}
        assert made["object"] == "audio.voice_consent"
        assert made["id"].startswith("cons_")
    with serving(tmp_path) as server:
        assert server.get(f"/v1/audio/voice_consents/{made['id']}").json() == made
        assert server.app.state.voice_desk.consents.recording(made["id"]) == wav()
        path = f"/v1/audio/voice_consents/{made['id']}"
        assert server.post(path, json={"name": "Anna B."}).json() == {**made, "name": "Anna B."}
        assert server.get(path).json()["name"] == "Anna B."
        assert server.app.state.voice_desk.consents.recording(made["id"]) == wav()


def test_consents_are_paged_newest_first(server: Server) -> None:
    made = {consent(server, f"c{n}").json()["id"] for n in range(5)}
    seen: list[str] = []
    after = {}
    for expected in (2, 2, 1):
        page = server.get("/v1/audio/voice_consents", params={"limit": 2, **after}).json()
        ids = [item["id"] for item in page["data"]]
        assert len(ids) == expected
        assert (page["first_id"], page["last_id"]) == (ids[0], ids[-1])
        assert page["has_more"] is (expected == 2)
        after = {"after": ids[-1]}
        seen += ids
    assert set(seen) == made
    assert len(seen) == 5
    empty = server.get("/v1/audio/voice_consents", params=after).json()
    assert empty == {
        "object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False,
    }  # fmt: skip


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "limit=²", "limit="])
def test_a_wrong_limit(server: Server, query: str) -> None:
    refused(server.get(f"/v1/audio/voice_consents?{query}"), 400, "limit")
    refused(server.get("/v1/audio/voice_consents?after=cons_x"), 400, "after")


def test_a_consent_in_use_outlives_its_voices(server: Server) -> None:
    made = consent(server).json()
    refused(upload(server, "Bob", wav(), consent="cons_" + 24 * "0"), 400, "consent")
    assert upload(server, "Anna", wav(), consent=made["id"]).json()["consent"] == made["id"]
    path = f"/v1/audio/voice_consents/{made['id']}"
    assert "'Anna'" in refused(server.delete(path), 409, "consent")
    server.delete("/v1/audio/voices/Anna")
    assert server.delete(path).json() == {
        "id": made["id"], "object": "audio.voice_consent", "deleted": True,
    }  # fmt: skip
    for method in ("GET", "DELETE"):
        refused(server.request(method, path), 404, "consent")
    assert server.files() == set()


def test_consents_that_are_incomplete(server: Server) -> None:
    refused(consent(server, name="../x"), 400, "name")
    refused(consent(server, language=""), 400, "language")
    url = "/v1/audio/voice_consents"
    refused(
        server.post(url, files={"name": (None, "a"), "language": (None, "en")}), 400, "recording"
    )
    refused(server.post(url, json={"name": "a"}), 415, None)
    silent = {"recording": ("c.wav", wav(np.zeros(48_000)))}
    refused(server.post(url, data={"name": "a", "language": "en"}, files=silent), 400, "recording")
    assert server.files() == set()
