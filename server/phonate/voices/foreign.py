"""Voices that other programs keep in folders, as the fields of an upload.

RealtimeTTS's Qwen server   manifest.json {"format": 1, "voices": [{"name", "ref_text", "kind":
                            "wav" | "latents", "files": [...], "sha256": [...]}]}, files below it
phonate                     folders with voice.json: a whole voice folder or one voice
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from phonate.audio.decode import MAX_BYTES
from phonate.errors import InvalidRequest, PhonateError
from phonate.voices.archive import Fields, consent_fields, voice_fields
from phonate.voices.consents import MAX_CONSENTS, ConsentStore
from phonate.voices.folders import is_plain_folder, read_file
from phonate.voices.inventory import Reader, why
from phonate.voices.manifest import Damaged, FromTheFuture
from phonate.voices.shelf import MAX_FILE_BYTES
from phonate.voices.store import VOICE_SCHEMA
from phonate.voices.voice import Voice

_MAX_REGISTRY_BYTES = 16 << 20

_KINDS = {"wav": ("wav_b64",), "latents": ("spk_b64", "rvq_b64")}


def read_folder(root: Path) -> Iterator[Fields | InvalidRequest]:
    """Each voice in a folder of one of the kinds above; InvalidRequest in place of a damaged one.
    Raises InvalidRequest for another folder."""
    if (root / "manifest.json").is_file():
        yield from _read_realtimetts(root)
    elif (root / VOICE_SCHEMA.manifest_name).is_file():
        yield _read_own(root.parent, root.name)
    else:
        if is_plain_folder(root / "consents"):
            yield from _read_consents(root / "consents")
        names = sorted(p.name for p in root.iterdir() if (p / VOICE_SCHEMA.manifest_name).is_file())
        if not names:
            raise InvalidRequest(
                f"{root} holds no voices: expected a manifest.json of RealtimeTTS, or folders with "
                "a voice.json."
            )
        for name in names:
            yield _read_own(root, name)


def _read_own(root: Path, folder: str) -> Fields | InvalidRequest:
    reader: Reader[Voice] = Reader(root, VOICE_SCHEMA, max_file_bytes=MAX_FILE_BYTES)
    try:
        entry = reader.load_named(folder)
        return voice_fields(entry.value, reader.contents(entry))
    except (Damaged, FromTheFuture, OSError) as error:
        return InvalidRequest(f"{folder}: {why(error)}")


def _read_consents(root: Path) -> Iterator[Fields | InvalidRequest]:
    store = ConsentStore(root, read_only=True)
    for consent in store.page(None, MAX_CONSENTS)[0]:
        try:
            yield {"consent_record": consent_fields(store, consent.id)}
        except PhonateError as error:
            yield InvalidRequest(f"{consent.id}: {error.message}")


def _read_realtimetts(root: Path) -> Iterator[Fields | InvalidRequest]:
    try:
        registry = json.loads(read_file(root / "manifest.json", max_bytes=_MAX_REGISTRY_BYTES))
        records = registry["voices"] if registry["format"] == 1 else None
    except (ValueError, KeyError, TypeError, RecursionError, Damaged) as error:
        raise InvalidRequest(f"{root / 'manifest.json'} is not RealtimeTTS's registry.") from error
    if not isinstance(records, list):
        raise InvalidRequest(f"{root / 'manifest.json'} is a registry of an unknown format.")
    for number, record in enumerate(records, 1):
        try:
            yield _realtimetts_fields(root, record)
        except (KeyError, TypeError, ValueError, OSError, Damaged) as error:
            yield InvalidRequest(f"Voice {number} of manifest.json: {why(error)}")


def _realtimetts_fields(root: Path, record: dict[str, Any]) -> Fields:
    fields: Fields = {"name": record["name"], "ref_text": record.get("ref_text")}
    for source, relative, sha256 in zip(
        _KINDS[record["kind"]], record["files"], record["sha256"], strict=True
    ):
        data = _read_below(root, relative)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise Damaged(f"{relative} does not match its checksum")
        fields[source] = base64.b64encode(data).decode("ascii")
    return fields


def _read_below(root: Path, relative: str) -> bytes:
    """A file named by a registry: below its folder, reached through no link."""
    parts = PurePosixPath(relative).parts
    if not parts or PurePosixPath(relative).is_absolute() or ".." in parts or "\\" in relative:
        raise Damaged("it names a file outside its folder")
    folder = root
    for part in parts[:-1]:
        folder = folder / part
        if not is_plain_folder(folder):
            raise Damaged(f"{relative} is not below its folder")
    return read_file(folder / parts[-1], max_bytes=MAX_BYTES)
