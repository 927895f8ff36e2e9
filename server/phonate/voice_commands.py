"""What `phonate voices ...` does, on the place itself: a running server sees every change."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import typer
from rich.console import Console
from rich.table import Table

from phonate.audio.decode import MAX_BYTES
from phonate.errors import InvalidRequest, NotFound, PhonateError, SetupError
from phonate.speech.language_names import canonical
from phonate.voices.archive import import_consent, import_voice, read_archive, write_archive
from phonate.voices.consents import ConsentStore
from phonate.voices.folders import FILE_MODE
from phonate.voices.foreign import read_folder
from phonate.voices.inventory import why
from phonate.voices.library import describe
from phonate.voices.place import Bucket, Place, below
from phonate.voices.store import StoredVoice, VoiceStore
from phonate.voices.uploads import draft_from_fields


def list_voices(place: Place, *, as_json: bool) -> None:
    """The voices on stdout; on stderr what is in the folder and not served."""
    if not _exists(place):
        typer.echo(f"no voices: {place} does not exist yet", err=True)
        return
    store = VoiceStore(place, read_only=True)
    entries = sorted(store.entries().values(), key=lambda e: (e.value.created_at, e.value.name))
    if as_json:
        for entry in entries:
            typer.echo(json.dumps(describe(entry.value), ensure_ascii=False))
    else:
        Console().print(_table(entries) if entries else "no voices")
    for problem in store.problems():
        typer.echo(f"not served: {problem.folder}: {problem.reason}", err=True)


def _table(entries: Iterable[StoredVoice]) -> Table:
    table = Table("name", "made from", "language", "transcript", "KiB", "since")
    for entry in entries:
        voice = entry.value
        since = time.strftime("%Y-%m-%d", time.localtime(voice.created_at))
        transcript = "yes" if voice.ref_text else "no"
        size = f"{entry.n_bytes / 1024:.0f}"
        made_from = voice.material.value
        table.add_row(_plain(voice.name), made_from, voice.language or "", transcript, size, since)
    return table


def _plain(text: str) -> str:
    """Brackets are markup to rich."""
    return text.replace("[", r"\[")


def add(
    place: Place,
    words: dict[str, Any],
    *,
    recording: Path | None,
    spk: Path | None,
    rvq: Path | None,
    replace: bool,
) -> None:
    """`words`: the fields of an upload that are text."""
    sources = {
        "audio_sample": _read(recording),
        "spk_b64": _read_base64(spk),
        "rvq_b64": _read_base64(rvq),
    }
    draft = draft_from_fields({**words, **sources}, resolve_language=canonical)
    store, consents = _open(place)
    consents.check(draft.consent)
    voice = store.add(draft, replace=replace).value
    typer.echo(f"added {voice.name} ({voice.id})")


def remove(place: Place, names: list[str]) -> None:
    store, _ = _open(place)
    for name in names:
        if not store.remove(name):
            raise _no_voice(name)
        typer.echo(f"removed {name}")


def export_voices(place: Place, file: str, names: list[str]) -> None:
    """To `file`, or stdout for "-"; all voices unless some are named."""
    if not _exists(place):
        raise SetupError(f"There is no voice folder {place}: nothing was registered yet.")
    store = VoiceStore(place, read_only=True)
    kept = below(place, "consents")
    consents = ConsentStore(kept, read_only=True) if _exists(kept) else None
    entries = [_find(store, name) for name in names] if names else list(store.entries().values())
    with _output(file) as stream:
        n_voices = write_archive(stream, store, entries, consents)
    typer.echo(f"exported {n_voices} voices", err=True)


def import_voices(place: Place, source: str, *, replace: bool) -> int:
    """From a file, stdin ("-") or a folder; how many were refused: told, while the others go on."""
    store, consents = _open(place)
    n_taken = n_refused = 0
    for number, item in enumerate(_items(source), 1):
        try:
            if isinstance(item, InvalidRequest):
                raise item
            if "consent_record" in item:
                import_consent(_object(item["consent_record"]), consents)
                continue
            voice = import_voice(item, store, consents, replace=replace)
            typer.echo(f"imported {voice.name}")
            n_taken += 1
        except PhonateError as error:
            n_refused += 1
            name = item.get("name") if isinstance(item, dict) else None
            typer.echo(f"not imported: {name or f'entry {number}'}: {error.message}", err=True)
    typer.echo(f"{n_taken} imported, {n_refused} refused", err=True)
    return n_refused


def _items(source: str) -> Iterator[dict[str, Any] | InvalidRequest]:
    path = Path(source)
    if source == "-":
        yield from read_archive(sys.stdin.buffer)
    elif path.is_dir():
        yield from read_folder(path)
    else:
        with _reading(path), path.open("rb") as stream:
            yield from read_archive(stream)


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRequest("consent_record must be an object.")
    return value


def _open(place: Place) -> tuple[VoiceStore, ConsentStore]:
    return VoiceStore(place), ConsentStore(below(place, "consents"))


def _exists(place: Place) -> bool:
    """A prefix of a bucket always does."""
    return isinstance(place, Bucket) or place.is_dir()


def _find(store: VoiceStore, name: str) -> StoredVoice:
    entry = store.find(name)
    if entry is None:
        raise _no_voice(name)
    return entry


def _no_voice(name: str) -> NotFound:
    return NotFound(f"There is no voice {name!r}. 'phonate voices list' shows them.")


@contextlib.contextmanager
def _output(file: str) -> Iterator[BinaryIO]:
    """All or nothing, and private: these are people's voices."""
    if file == "-":
        yield sys.stdout.buffer
        return
    target = Path(file)
    work = target.with_name(f".{target.name}.part")
    try:
        with open(os.open(work, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        work.replace(target)
    except OSError as error:
        raise SetupError(f"{file} cannot be written: {why(error)}") from error
    finally:
        work.unlink(missing_ok=True)


def _read(path: Path | None) -> bytes | None:
    """One byte more than is accepted is enough to see that it is too much."""
    if path is None:
        return None
    with _reading(path), path.open("rb") as stream:
        return stream.read(MAX_BYTES + 1)


def _read_base64(path: Path | None) -> str | None:
    data = _read(path)
    return None if data is None else base64.b64encode(data).decode("ascii")


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {why(error)}") from error
