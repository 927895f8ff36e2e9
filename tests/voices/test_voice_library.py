from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from voice_samples import embedded, hum, latents, recorded

from phonate.engine.base import EngineInfo, Reference, Samples, Speaker
from phonate.errors import (
    Conflict,
    EngineFailure,
    InvalidRequest,
    NotFound,
    UnsupportedOperation,
    VoiceNotFound,
)
from phonate.voices.folders import write_folder
from phonate.voices.library import VoiceLibrary, describe, listing
from phonate.voices.manifest import FileSeal, Manifest
from phonate.voices.recording import pack_wav, unpack_wav
from phonate.voices.references import Encoder, ReferenceMemory
from phonate.voices.starters import StarterVoices
from phonate.voices.store import VOICE_SCHEMA, VoiceStore, voice_to_dict

DIM = 8


class CountingEncoder:
    """Latents that tell the audio and the text they were made from."""

    def __init__(self) -> None:
        self.calls: list[str | None] = []
        self.fails: Exception | None = None
        self.heard: Samples | None = None
        self.delay_s = 0.0

    def __call__(self, audio: Samples, text: str | None) -> Reference:
        self.calls.append(text)
        self.heard = audio
        time.sleep(self.delay_s)
        if self.fails:
            raise self.fails
        embedding = np.full(DIM, 1 + float(np.abs(audio).sum()), np.float32)
        codes = np.full((4, 16), len(text), np.int32) if text else None
        return Reference(embedding, codes, text)


@pytest.fixture
def encode() -> CountingEncoder:
    return CountingEncoder()


def library(root: Path, encode: CountingEncoder | None, **more: object) -> VoiceLibrary:
    info = EngineInfo(
        name="scripted",
        model="base",
        device="cpu",
        sample_rate=24_000,
        languages=("english",),
        can_clone=encode is not None,
        can_icl=bool(more.pop("can_icl", True)),
        embedding_dim=DIM,
        details={"quantisation": str(more.pop("quant", "Q8_0")), "abi": "6"},
    )
    encoder = Encoder.of(info, encode) if encode else None
    return VoiceLibrary(
        VoiceStore(root / "voices"),
        model=info.model,
        encoder=encoder,
        built_in=[Speaker("heart", "Heart of Gold")],
        **more,  # type: ignore[arg-type]
    )


def test_wav_is_what_was_packed_and_packing_it_again_changes_nothing() -> None:
    loud = np.array([0, 0.5, -1, 1, 2, -2, 1e-9], np.float32)
    data = pack_wav(loud)
    assert len(data) == 44 + 2 * len(loud)
    once = unpack_wav(data)
    assert np.abs(once - np.clip(loud, -1, 1)).max() <= 1 / 32768
    assert pack_wav(once) == data


def test_registering_encodes_once_and_a_restart_reads_the_cache(
    tmp_path: Path, encode: CountingEncoder
) -> None:
    one = library(tmp_path, encode)
    draft = recorded("Anna", ref_text="Hi there.")
    one.register(draft)
    made = one.reference_for("ANNA")
    assert encode.calls == ["Hi there."]
    assert encode.heard is not None
    stored = unpack_wav(draft.files["reference.wav"])
    heard, pause = encode.heard[: len(stored)], encode.heard[len(stored) :]
    assert np.array_equal(heard[:-240], stored[:-240])
    assert len(pause) == 12_000, "in-context learning goes on after a pause"
    assert not pause.any()
    assert made.text == "Hi there."
    again = library(tmp_path, encode).reference_for("anna")
    assert encode.calls == ["Hi there."]
    assert np.array_equal(again.embedding, made.embedding)
    assert again.codes is not None
    assert np.array_equal(again.codes, made.codes)
    assert again.text == made.text


def test_the_same_reference_object_comes_from_memory(
    tmp_path: Path, encode: CountingEncoder
) -> None:
    lib = library(tmp_path, encode)
    lib.register(recorded("Anna"))
    assert lib.reference_for("Anna") is lib.reference_for("anna")
    with pytest.raises(ValueError, match="read-only"):
        lib.reference_for("Anna").embedding[0] = 1


def test_speaker_only_and_engines_without_icl_use_no_transcript(
    tmp_path: Path, encode: CountingEncoder
) -> None:
    lib = library(tmp_path, encode)
    lib.register(recorded("Anna", ref_text="Hi."))
    plain = lib.reference_for("Anna", "speaker_only")
    assert (plain.codes, plain.text) == (None, None)
    assert encode.calls == ["Hi."], "the x-vector is already there"
    simple = library(tmp_path, encode, can_icl=False)
    assert simple.reference_for("Anna").codes is None
    assert encode.heard is not None
    assert encode.heard[-240:].any(), "and an x-vector needs no pause"
    assert encode.calls == ["Hi.", None]


@pytest.mark.parametrize("change", ["transcript", "quantisation", "damage"])
def test_what_decides_the_latents_makes_them_anew(
    tmp_path: Path, encode: CountingEncoder, change: str
) -> None:
    library(tmp_path, encode).register(recorded("Anna", ref_text="one"))
    if change == "transcript":
        VoiceStore(tmp_path / "voices").add(recorded("Anna", ref_text="other"))
    if change == "damage":
        (file,) = (tmp_path / "voices" / "cache").rglob("*.latents")
        file.write_bytes(file.read_bytes()[:-1])
    quant = "Q4_K_M" if change == "quantisation" else "Q8_0"
    library(tmp_path, encode, quant=quant).reference_for("Anna")
    assert len(encode.calls) == 2


@pytest.mark.parametrize(
    "failure",
    [InvalidRequest("too noisy"), EngineFailure("engine gave up"), RuntimeError("bug")],
)
def test_a_bad_upload_harms_nothing(
    tmp_path: Path, encode: CountingEncoder, failure: Exception
) -> None:
    lib = library(tmp_path, encode)
    lib.register(recorded("Anna", seed=1))
    before = lib.reference_for("Anna")
    files = sorted((tmp_path / "voices").rglob("*"))
    encode.fails = failure
    for name in ("Anna", "Bob"):
        with pytest.raises(type(failure)):
            lib.register(recorded(name, seed=2))
    assert lib.reference_for("Anna") is before
    assert sorted((tmp_path / "voices").rglob("*")) == files


def test_an_encoder_that_answers_nonsense_is_refused(tmp_path: Path) -> None:
    def nonsense(audio: Samples, text: str | None) -> Reference:
        return Reference(np.full(DIM, np.nan, np.float32))

    lib = library(tmp_path, nonsense)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="finite"):
        lib.register(recorded("Anna"))
    assert lib.voices() == ()


def test_an_engine_that_cannot_clone_keeps_voices_and_says_so(tmp_path: Path) -> None:
    lib = library(tmp_path, None)
    lib.register(recorded("Anna"))
    assert [voice.name for voice in lib.voices()] == ["Anna"]
    with pytest.raises(UnsupportedOperation, match="registered, but the model base cannot"):
        lib.reference_for("Anna")
    assert library(tmp_path, CountingEncoder()).reference_for("Anna") is not None


def test_latents_and_embeddings_need_no_encoding_but_the_right_size(
    tmp_path: Path, encode: CountingEncoder
) -> None:
    lib = library(tmp_path, encode)
    lib.register(latents("Lat", ref_text="Hello."))
    lib.register(embedded("Emb"))
    for bad in (latents("Bad", dim=9), embedded("Bad", dim=7)):
        with pytest.raises(InvalidRequest, match="this model's speakers have 8"):
            lib.register(bad)
    full = lib.reference_for("Lat")
    assert full.codes is not None
    assert full.codes.shape == (3, 16)
    assert full.text == "Hello."
    assert lib.reference_for("Emb").embedding.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert encode.calls == []
    VoiceStore(tmp_path / "voices").add(embedded("Old", dim=4))
    with pytest.raises(UnsupportedOperation, match="have 4 numbers; base has 8"):
        lib.reference_for("Old")


@pytest.mark.parametrize("name", ["heart", "HEART", "Heart of gold"])
def test_a_built_in_speaker_cannot_be_shadowed_or_deleted(
    tmp_path: Path, encode: CountingEncoder, name: str
) -> None:
    lib = library(tmp_path, encode)
    with pytest.raises(Conflict, match="built-in speaker"):
        lib.register(recorded(name))
    with pytest.raises(Conflict, match="comes with the server"):
        lib.remove(name)
    assert encode.calls == []


def test_an_unknown_voice_names_those_there_are(tmp_path: Path, encode: CountingEncoder) -> None:
    lib = library(tmp_path, encode)
    lib.register(recorded("Anna"))
    with pytest.raises(VoiceNotFound, match=r"no voice 'Bob'\. Available: Anna"):
        lib.reference_for("Bob")
    with pytest.raises(NotFound):
        lib.remove("Bob")


def test_deleting_removes_files_cache_and_memory(tmp_path: Path, encode: CountingEncoder) -> None:
    lib, other = library(tmp_path, encode), library(tmp_path, encode)
    voice = lib.register(recorded("Anna", ref_text="Hi."))
    running = other.reference_for("Anna")
    assert list((tmp_path / "voices" / "cache").rglob("*.latents"))
    assert lib.remove("anna") == voice.id
    left = {p.name for p in (tmp_path / "voices").rglob("*") if p.is_file()}
    assert left == {".lock", ".changes"}
    assert len(lib._memory) == 0
    with pytest.raises(VoiceNotFound):
        other.reference_for("Anna")
    other.register(recorded("Bob"))
    assert len(other._memory) == 1, "the other process forgets too"
    assert running.text == "Hi.", "and a running utterance keeps the voice it began with"


def test_a_voice_deleted_while_it_is_encoded_leaves_no_latents(
    tmp_path: Path, encode: CountingEncoder
) -> None:
    lib = library(tmp_path, encode)
    lib.store.add(recorded("Anna"))
    real = encode.__call__

    def encode_and_lose(audio: Samples, text: str | None) -> Reference:
        VoiceStore(tmp_path / "voices").remove("Anna")
        return real(audio, text)

    assert lib._encoder is not None
    object.__setattr__(lib._encoder, "encode", encode_and_lose)
    lib.reference_for("Anna")
    assert not list((tmp_path / "voices").rglob("*.latents"))
    assert len(lib._memory) == 0


def test_latents_of_nobody_are_swept_at_the_start(tmp_path: Path, encode: CountingEncoder) -> None:
    library(tmp_path, encode).register(recorded("Anna"))
    (latents_file,) = (tmp_path / "voices" / "cache").rglob("*.latents")
    orphan = tmp_path / "voices" / "cache" / ("voice_" + 24 * "0")
    latents_file.parent.rename(orphan)
    library(tmp_path, encode)
    assert not orphan.exists()


def test_many_at_once_encode_a_voice_once(tmp_path: Path, encode: CountingEncoder) -> None:
    lib = library(tmp_path, encode)
    lib.store.add(recorded("Anna"))
    encode.delay_s = 0.05
    found: list[Reference] = []
    threads = [
        threading.Thread(target=lambda: found.append(lib.reference_for("Anna"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(encode.calls) == 1
    assert all(reference is found[0] for reference in found)


def test_switching_voices_is_fast(tmp_path: Path, encode: CountingEncoder) -> None:
    lib = library(tmp_path, encode)
    for n in range(20):
        lib.register(recorded(f"voice {n}", ref_text="Hi."))
    lib.reference_for("voice 0")
    began = time.process_time()
    for n in range(200):
        lib.reference_for(f"voice {n % 20}")
    assert (time.process_time() - began) / 200 < 0.001
    assert len(encode.calls) == 20


def test_memory_is_bounded() -> None:
    memory = ReferenceMemory(capacity=3)
    for n in range(10):
        memory.put(str(n), None, Reference(np.ones(1, np.float32)))
        memory.get("0", None)
    assert len(memory) == 3
    assert memory.get("0", None) is not None


def starter_folder(root: Path, name: str, **words: str) -> Path:
    draft = recorded(name, **words)
    seals = {file: FileSeal.of(data) for file, data in draft.files.items()}
    manifest = Manifest(VOICE_SCHEMA.format, 1, voice_to_dict(draft.to_voice(5)), seals)
    folder = root / name
    root.mkdir(exist_ok=True)
    write_folder(folder, {**draft.files, "LICENSE": b"free", "voice.json": manifest.to_bytes()})
    return folder


def test_starters_speak_can_be_shadowed_and_stay(tmp_path: Path, encode: CountingEncoder) -> None:
    starter_folder(tmp_path / "starters", "Dawn", ref_text="Good morning.")
    broken = starter_folder(tmp_path / "starters", "Dusk")
    (broken / "reference.wav").write_bytes(b"")
    lib = library(tmp_path, encode, starters=StarterVoices(tmp_path / "starters"))
    assert [voice.name for voice in lib.voices()] == ["Dawn"]
    assert lib.reference_for("dawn").text == "Good morning."
    again = library(tmp_path, encode, starters=StarterVoices(tmp_path / "starters"))
    again.reference_for("dawn")
    assert len(encode.calls) == 1, "the cache of a starter survives the sweep"
    with pytest.raises(Conflict, match="comes with the server"):
        again.remove("Dawn")
    again.register(recorded("Dawn", ref_text="Mine."))
    assert again.reference_for("Dawn").text == "Mine."
    assert [voice.created_at for voice in again.voices()] != [5]
    again.remove("Dawn")
    assert again.reference_for("Dawn").text == "Good morning."


def test_a_public_listing_has_no_transcript(tmp_path: Path, encode: CountingEncoder) -> None:
    lib = library(tmp_path, encode)
    voice = lib.register(
        recorded("Anna", ref_text="my secret", description="me", language="german")
    )
    assert set(listing(voice)) == {"id", "name", "kind", "language", "created_at"}
    full = describe(voice)
    assert full["object"] == "audio.voice"
    assert full["ref_text"] == "my secret"
    assert "consent" not in full, "absent, not null"
    assert str(tmp_path) not in repr(full)


def test_samples_helper_is_audible() -> None:
    assert np.abs(hum()).mean() > 0.1
