"""Cloned voices on a native library with a tiny random base model: what is stored is spoken with,
also after a restart, and a deletion does not cut what is being said."""

import base64
import io
import threading

import httpx
import numpy as np
import pytest
import soundfile
from support import running

from phonate.engine.choose import create_engine
from phonate.settings import load
from phonate.voices.latents import pack_rvq, pack_spk


def recording(seconds=2.0, hz=180.0):
    t = np.arange(round(seconds * 24000)) / 24000
    swell = 0.6 + 0.4 * np.sin(2 * np.pi * 3 * t)
    sound = 0.2 * swell * sum(np.sin(2 * np.pi * k * hz * t) / k for k in range(1, 6))
    buffer = io.BytesIO()
    soundfile.write(buffer, sound, 24000, format="WAV", subtype="PCM_16")
    return buffer.getvalue()


@pytest.fixture
def start(library, model_files, tmp_path):
    """Starts a server on one voice folder; again for a restart."""
    files = model_files("base")
    options = {
        "talker": str(files.talker),
        "codec": str(files.codec),
        "library": str(library.path),
        "synthesis_timeout": "600",
        "voice_dir": str(tmp_path / "voices"),
    }
    return lambda: running(create_engine(load(options, {}).settings), **options)


def register(server, name, **fields):
    answer = httpx.post(
        f"{server.address}/v1/audio/voices", json={"name": name, **fields}, timeout=600
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def upload(server, name, **fields):
    answer = httpx.post(
        f"{server.address}/v1/audio/voices",
        files={"audio_sample": ("a.wav", recording(), "audio/wav")},
        data={"name": name, "consent": "spoken", **fields},
        timeout=600,
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def speak(server, voice, **body):
    body = {"input": "Hello there.", "voice": voice, "response_format": "pcm", "seed": 5,
            "max_new_tokens": 3, **body}  # fmt: skip
    return httpx.post(f"{server.address}/v1/audio/speech", json=body, timeout=600)


def test_a_voice_is_cloned_kept_and_spoken_with_after_a_restart(start):
    with start() as server:
        upload(server, "Anna")
        upload(server, "Berta", ref_text="What is said here.")
        anna, berta = speak(server, "anna"), speak(server, "BERTA")
        assert anna.status_code == berta.status_code == 200, (anna.text, berta.text)
        assert anna.headers["x-voice"] == "Anna"
        assert anna.content != berta.content
        only_the_speaker = speak(server, "Berta", clone_mode="speaker_only")
        assert only_the_speaker.content != berta.content
        names = [v["name"] for v in httpx.get(f"{server.address}/v1/audio/voices").json()["voices"]]
        assert names == ["Anna", "Berta"]
    with start() as server:
        assert speak(server, "Anna").content == anna.content
        assert speak(server, "Berta").content == berta.content


def test_by_latents_and_by_embedding(start):
    with start() as server:
        dim = server.engine.info.embedding_dim
        rng = np.random.default_rng(0)
        embedding = (rng.standard_normal(dim) * 0.05).astype(np.float32)
        codes = rng.integers(0, 2048, (12, 16), dtype=np.int32)
        register(
            server, "Latent", ref_text="What is said here.",
            spk_b64=base64.b64encode(pack_spk(embedding)).decode(),
            rvq_b64=base64.b64encode(pack_rvq(codes)).decode(),
        )  # fmt: skip
        register(server, "Vector", speaker_embedding=embedding.tolist())
        latent, vector = speak(server, "Latent"), speak(server, "Vector")
        assert latent.status_code == vector.status_code == 200, (latent.text, vector.text)
        assert latent.content != vector.content
        same = speak(server, "Latent", clone_mode="speaker_only")
        assert same.content == vector.content


def test_deleting_a_voice_while_it_speaks_does_not_cut_it(start):
    with start() as server:
        voice = upload(server, "Anna")
        whole = speak(server, "Anna", max_new_tokens=12)
        said = []
        thread = threading.Thread(
            target=lambda: said.append(speak(server, "Anna", max_new_tokens=12))
        )
        thread.start()
        while not server.service.health().active_requests and thread.is_alive():
            pass
        gone = httpx.delete(f"{server.address}/v1/audio/voices/{voice['id']}", timeout=60)
        assert gone.status_code == 200
        thread.join()
        assert said[0].content == whole.content
        after = speak(server, "Anna")
        assert after.status_code == 400
        assert after.json()["error"]["code"] == "voice_not_found"


def test_a_one_off_reference_equals_the_stored_voice(start):
    with start() as server:
        upload(server, "Anna", ref_text="What is said here.")
        stored = speak(server, "Anna")
        one_off = speak(
            server, None, ref_text="What is said here.",
            ref_audio=base64.b64encode(recording()).decode(),
        )  # fmt: skip
        assert one_off.content == stored.content
        assert one_off.headers["x-voice"] == "one-off"
