"""Voices in one file, to carry them to another machine.

JSON lines. The first says what this is; each further one is a voice in the very fields that an
upload has, and is checked like one, so that an archive can do no more harm than an upload. There
are no paths in it and nothing is compressed: nothing can slip out or blow up.

    {"format": "phonate-voices", "version": 1}
    {"consent_record": {"id": "cons_...", "name": ..., "language": ..., "recording_b64": ...}}
    {"name": "Anna", "created_at": 1790000000, "ref_text": "...", "wav_b64": "..."}
"""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from phonate.errors import InvalidRequest, NotFound, StorageError
from phonate.voices.consents import Consent, ConsentStore, is_consent_id
from phonate.voices.latents import unpack_spk
from phonate.voices.store import StoredVoice, VoiceStore, voice_to_dict
from phonate.voices.uploads import decode_base64, draft_from_fields
from phonate.voices.voice import Material, Voice

FORMAT = "phonate-voices"
VERSION = 1
MAX_LINE_BYTES = 16 << 20
"""A recording of 10 MiB in base64 and its words."""

Fields = dict[str, Any]


def write_archive(
    stream: BinaryIO,
    store: VoiceStore,
    entries: Iterable[StoredVoice],
    consents: ConsentStore | None,
) -> int:
    """Write these voices and the consents they stand on; how many voices. Derived latents are left
    out: they fit one model. Raises StorageError for a voice that cannot be read."""
    _write(stream, {"format": FORMAT, "version": VERSION})
    written: set[str] = set()
    n_voices = 0
    for entry in entries:
        files = store.files(entry)
        if files is None:
            continue  # removed while we were writing
        consent = entry.value.consent
        if consents and consent and is_consent_id(consent) and consent not in written:
            written.add(consent)
            with contextlib.suppress(NotFound):
                _write(stream, {"consent_record": consent_fields(consents, consent)})
        _write(stream, voice_fields(entry.value, files))
        n_voices += 1
    return n_voices


def read_archive(stream: BinaryIO) -> Iterator[Fields]:
    """The lines after the first, as they come. Raises InvalidRequest for what is no archive, or
    one of a newer phonate."""
    head: Fields = {}
    with contextlib.suppress(InvalidRequest):
        head = _parse(_read_line(stream), 1)
    if head.get("format") != FORMAT or type(head.get("version")) is not int:
        raise InvalidRequest("This is not an archive of voices made by 'phonate voices export'.")
    if head["version"] > VERSION:
        raise InvalidRequest(
            f"The archive was made by a newer phonate (version {head['version']}, known here: "
            f"{VERSION}). Upgrade phonate to import it."
        )
    number = 1
    while line := _read_line(stream):
        number += 1
        if line.strip():
            yield _parse(line, number)


def import_voice(
    fields: Fields, store: VoiceStore, consents: ConsentStore, *, replace: bool
) -> Voice:
    """Check one line like an upload and keep it. Raises InvalidRequest, TooLarge,
    UnsupportedMedia, Conflict, StorageError."""
    kind = fields.get("kind", "registered")
    if kind not in ("registered", "designed"):
        raise InvalidRequest("kind must be 'registered' or 'designed'.", param="kind")
    draft = draft_from_fields(fields, kind=kind)
    consents.check(draft.consent)
    return store.add(draft, replace=replace, created_at=_time(fields)).value


def import_consent(fields: Fields, consents: ConsentStore) -> Consent:
    """Likewise, for the value of `consent_record`."""
    return consents.restore(
        id=fields.get("id"),
        name=fields.get("name"),
        language=fields.get("language"),
        created_at=_time(fields),
        recording=decode_base64(fields.get("recording_b64"), "recording_b64"),
    )


def _time(fields: Fields) -> int:
    """When it was made; now, if the archive does not say or says the impossible."""
    now, said = int(time.time()), fields.get("created_at")
    return said if type(said) is int and 0 < said <= now else now


def voice_fields(voice: Voice, files: dict[str, bytes]) -> Fields:
    """A stored voice as the fields of the upload that would make it."""
    words = voice_to_dict(voice)
    del words["id"], words["material"]
    return {**words, **_SOURCES[voice.material](files)}


_SOURCES: dict[Material, Callable[[dict[str, bytes]], Fields]] = {
    Material.REFERENCE: lambda files: {"wav_b64": _base64(files["reference.wav"])},
    Material.LATENTS: lambda files: {
        "spk_b64": _base64(files["voice.spk"]),
        "rvq_b64": _base64(files["voice.rvq"]),
    },
    Material.EMBEDDING: lambda files: {
        "speaker_embedding": unpack_spk(files["voice.spk"]).tolist()
    },
}


def consent_fields(consents: ConsentStore, id: str) -> Fields:
    """A consent as `import_consent` takes it. Raises NotFound."""
    consent = consents.get(id)
    return {
        "id": consent.id,
        "name": consent.name,
        "language": consent.language,
        "created_at": consent.created_at,
        "recording_b64": _base64(consents.recording(id)),
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _write(stream: BinaryIO, fields: Fields) -> None:
    line = json.dumps(fields, ensure_ascii=False).encode() + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise StorageError(f"The voice {fields.get('name')!r} is too large to be exported.")
    stream.write(line)


def _read_line(stream: BinaryIO) -> bytes:
    line = stream.readline(MAX_LINE_BYTES + 1)
    if len(line) > MAX_LINE_BYTES:
        raise InvalidRequest(f"A line of the archive has more than {MAX_LINE_BYTES} bytes.")
    return line


def _parse(line: bytes, number: int) -> Fields:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"Line {number} of the archive is not JSON.") from error
    if not isinstance(fields, dict):
        raise InvalidRequest(f"Line {number} of the archive is not a JSON object.")
    return fields
