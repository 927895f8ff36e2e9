from __future__ import annotations

import base64
import hashlib
import io
import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from voice_samples import embedded, hum, latents, recorded

from phonate.errors import InvalidRequest, PhonateError
from phonate.voices import archive
from phonate.voices.archive import import_consent, import_voice, read_archive, write_archive
from phonate.voices.consents import ConsentStore
from phonate.voices.foreign import read_folder
from phonate.voices.recording import pack_wav
from phonate.voices.store import VoiceStore

HEAD = {"format": "phonate-voices", "version": 1}


def opened(root: Path) -> tuple[VoiceStore, ConsentStore]:
    return VoiceStore(root), ConsentStore(root / "consents")


def exported(root: Path) -> bytes:
    store, consents = opened(root)
    stream = io.BytesIO()
    write_archive(stream, store, store.entries().values(), consents)
    return stream.getvalue()


def imported(items: Iterable[Any], root: Path) -> list[PhonateError]:
    store, consents = opened(root)
    refused = []
    for item in items:
        try:
            if isinstance(item, InvalidRequest):
                raise item
            if "consent_record" in item:
                import_consent(item["consent_record"], consents)
            else:
                import_voice(item, store, consents, replace=False)
        except PhonateError as error:
            refused.append(error)
    return refused


def contents(root: Path) -> dict[str, Any]:
    store, _ = opened(root)
    return {e.id: (e.value, store.files(e)) for e in store.entries().values()}


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A folder with a voice of every material and a consent."""
    root = tmp_path / "full"
    store, consents = opened(root)
    consent = consents.create(name="Anna", language="de", recording=pack_wav(hum(1.5)))
    store.add(recorded("Anna", seconds=1.5, ref_text="Hm.", consent=consent.id), created_at=1000)
    store.add(latents("Großmutter 👵", ref_text="Ja?", language="german"), created_at=2000)
    store.add(embedded("Emb"), created_at=3000)
    return root


def test_export_and_import_give_the_same_voices(full: Path, tmp_path: Path) -> None:
    data = exported(full)
    assert imported(read_archive(io.BytesIO(data)), tmp_path / "new") == []
    assert contents(tmp_path / "new") == contents(full)
    assert exported(tmp_path / "new") == data
    old, new = ConsentStore(full / "consents"), ConsentStore(tmp_path / "new" / "consents")
    (consent,) = old.page(None, 9)[0]
    assert new.get(consent.id) == consent
    assert new.recording(consent.id) == old.recording(consent.id)


def test_a_whole_voice_folder_is_imported_with_its_consents(full: Path, tmp_path: Path) -> None:
    (full / "broken").mkdir()
    (full / "broken" / "voice.json").write_text("{}")
    refused = imported(read_folder(full), tmp_path / "new")
    assert [error.message.split(":")[0] for error in refused] == ["broken"]
    assert contents(tmp_path / "new") == contents(full)


def test_an_archive_is_readable_by_whoever_made_an_upload(full: Path) -> None:
    lines = [json.loads(line) for line in exported(full).splitlines()]
    assert lines[0] == HEAD
    voices = {line["name"]: line for line in lines[1:] if "name" in line}
    assert base64.b64decode(voices["Anna"]["wav_b64"])[:4] == b"RIFF"
    assert voices["Emb"]["speaker_embedding"] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert "id" not in voices["Anna"]


def lines(*items: object) -> io.BytesIO:
    return io.BytesIO(b"".join(json.dumps(item).encode() + b"\n" for item in items))


WAV_B64 = base64.b64encode(pack_wav(hum(1.2))).decode()


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"name": "../x", "wav_b64": WAV_B64}, "name"),
        ({"name": "x", "wav_b64": "/etc/passwd"}, "wav_b64"),
        ({"name": "x", "reference": "../../etc/passwd"}, "nothing to make a voice from"),
        ({"name": "x", "wav_b64": WAV_B64, "kind": "built_in"}, "kind"),
        ({"name": "x", "wav_b64": WAV_B64, "consent": "cons_" + 24 * "0"}, "no consent"),
        ({"name": 7}, "name"),
        ({"consent_record": {"id": "../x", "name": "a", "language": "de"}}, "recording_b64"),
        ({"consent_record": {"id": "../x", "recording_b64": WAV_B64}}, "24 hex digits"),
    ],
)  # fmt: skip
def test_a_bad_line_is_refused_and_the_others_go_on(
    tmp_path: Path, item: object, said: str
) -> None:
    stream = lines(HEAD, item, {"name": "good", "wav_b64": WAV_B64, "id": "voice_evil"})
    (error,) = imported(read_archive(stream), tmp_path)
    assert said in error.message
    ((voice, _),) = contents(tmp_path).values()
    assert voice.name == "good"


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"{}\n", b"PK\x03\x04", b"[]\n", b'{"format": "phonate-voices"}\n', b"\xff\n"],
)
def test_what_is_no_archive_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        list(read_archive(io.BytesIO(data)))


def test_an_archive_from_the_future_asks_for_an_upgrade() -> None:
    with pytest.raises(InvalidRequest, match="Upgrade phonate"):
        list(read_archive(lines({**HEAD, "version": 2})))


def test_an_endless_line_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_LINE_BYTES", 1000)
    stream = io.BytesIO(json.dumps(HEAD).encode() + b"\n" + b"x" * 5000)
    with pytest.raises(InvalidRequest, match="more than 1000 bytes"):
        list(read_archive(stream))
    assert stream.tell() < 2000


@pytest.mark.parametrize("said", [-5, 0, 10**12, 1.5, "yesterday", True, None])
def test_an_impossible_time_becomes_now(tmp_path: Path, said: object) -> None:
    stream = lines(HEAD, {"name": "x", "wav_b64": WAV_B64, "created_at": said})
    assert imported(read_archive(stream), tmp_path) == []
    ((voice, _),) = contents(tmp_path).values()
    assert voice.created_at > 1_700_000_000


# --- RealtimeTTS's folder


def realtimetts(root: Path, **changes: Any) -> Path:
    """As its server writes it: one recording, one pair of latents."""
    (root / "files").mkdir(parents=True)
    payloads = {
        "files/a.wav": pack_wav(hum(1.5)),
        "files/b.spk": struct.pack("<4f", 1, 2, 3, 4),
        "files/b.rvq": bytes(44),
    }
    for name, data in payloads.items():
        (root / name).write_bytes(data)

    def record(name: str, kind: str, *files: str) -> dict[str, Any]:
        sha256 = [hashlib.sha256(payloads[file]).hexdigest() for file in files]
        return {"name": name, "ref_text": "Hm.", "kind": kind, "files": files, "sha256": sha256}

    first = {**record("Zoë", "wav", "files/a.wav"), **changes}
    second = record("Lat", "latents", "files/b.spk", "files/b.rvq")
    registry = {"format": 1, "voices": [first, second]}
    (root / "manifest.json").write_text(json.dumps(registry))
    return root


def test_a_realtimetts_folder_is_taken_over(tmp_path: Path) -> None:
    folder = realtimetts(tmp_path / "theirs")
    assert imported(read_folder(folder), tmp_path / "new") == []
    found = {voice.name: (voice, files) for voice, files in contents(tmp_path / "new").values()}
    assert set(found) == {"Zoë", "Lat"}
    assert found["Zoë"][0].ref_text == "Hm."
    assert found["Zoë"][1]["reference.wav"] == pack_wav(hum(1.5))
    assert found["Lat"][1]["voice.spk"] == struct.pack("<4f", 1, 2, 3, 4)


@pytest.mark.parametrize(
    "changes",
    [
        {"files": ["../secret.wav"]},
        {"files": ["/etc/passwd"]},
        {"files": ["files/../../secret.wav"]},
        {"files": ["..\\secret.wav"]},
        {"files": ["files/link.wav"]},
        {"files": ["link/secret.wav"]},
        {"files": ["files"]},
        {"files": ["files/nothing.wav"]},
        {"files": [""]},
        {"files": [7]},
        {"files": []},
        {"sha256": [64 * "0"]},
        {"kind": "zip"},
        {"kind": ["wav"]},
        {"name": "../../x"},
        {"name": None},
        {"ref_text": 5},
    ],
)
def test_nothing_outside_the_folder_is_read_and_the_other_voice_comes(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    secret = tmp_path / "secret.wav"
    secret.write_bytes(pack_wav(hum(1.5)))
    folder = realtimetts(tmp_path / "theirs", **changes)
    (folder / "files" / "link.wav").symlink_to(secret)
    (folder / "link").symlink_to(tmp_path)
    assert len(imported(read_folder(folder), tmp_path / "new")) == 1
    assert [voice.name for voice, _ in contents(tmp_path / "new").values()] == ["Lat"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 2, "voices": []}', '{"format": 1, "voices": 3}']
)
def test_another_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InvalidRequest):
        list(read_folder(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidRequest, match="holds no voices"):
        list(read_folder(tmp_path / "empty"))
