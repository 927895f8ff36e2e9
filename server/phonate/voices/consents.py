"""Consent records: who agreed, in their own voice, that theirs may be cloned.

Kept with the same care as voices, as the bytes that were sent: a proof is not re-encoded.

    consents/cons_4f....00000001.77aa01c3/{consent.json, recording.bin}
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from phonate.audio.reference import load_reference
from phonate.errors import Conflict, InvalidRequest, NotFound
from phonate.voices.draft import MAX_LANGUAGE_CHARS, clean_text
from phonate.voices.inventory import Entry, Inventory, Problem, Schema
from phonate.voices.manifest import Damaged, FileSeal
from phonate.voices.open_shelf import AnyShelf, following, open_shelf
from phonate.voices.place import Place
from phonate.voices.voice import clean_name

MAX_CONSENTS = 1000

_RECORDING = "recording.bin"
_ID = re.compile(r"cons_[0-9a-f]{24}")


@dataclass(frozen=True, slots=True)
class Consent:
    id: str
    """`cons_` and 24 random hex digits."""
    name: str
    language: str
    """As it was given: a BCP 47 tag."""
    created_at: int
    """Unix seconds."""


def _from_dict(value: dict[str, Any], files: Mapping[str, FileSeal]) -> Consent:
    consent = Consent(**value)
    texts = (consent.id, consent.name, consent.language)
    if not all(isinstance(text, str) for text in texts) or type(consent.created_at) is not int:
        raise Damaged("a field has the wrong type")
    if set(files) != {_RECORDING}:
        raise Damaged("a consent has one recording")
    return consent


CONSENT_SCHEMA: Schema[Consent] = Schema(
    noun="consent",
    id_pattern=_ID.pattern,
    manifest_name="consent.json",
    format="phonate-consent",
    version=1,
    to_dict=dataclasses.asdict,
    from_dict=_from_dict,
    id_of=lambda consent: consent.id,
)


class ConsentStore:
    """Blocking; any thread. See Shelf for errors of the disk."""

    def __init__(
        self, place: Place, *, max_consents: int = MAX_CONSENTS, read_only: bool = False
    ) -> None:
        self._shelf: AnyShelf[Consent] = open_shelf(place, CONSENT_SCHEMA, read_only=read_only)
        self._max = max_consents

    def create(self, *, name: object, language: object, recording: bytes) -> Consent:
        """Check and keep. Raises InvalidRequest, TooLarge, UnsupportedMedia, Conflict when full."""
        id = f"cons_{secrets.token_hex(12)}"
        return self.restore(
            id=id, name=name, language=language, created_at=int(time.time()), recording=recording
        )

    def restore(
        self, *, id: object, name: object, language: object, created_at: int, recording: bytes
    ) -> Consent:
        """`create` for a consent that had an id before, elsewhere. Raises InvalidRequest for an id
        that cannot be one; one that is here already is replaced."""
        if not isinstance(id, str) or not _ID.fullmatch(id):
            raise InvalidRequest("A consent's id is 'cons_' and 24 hex digits.", param="consent")
        cleaned = clean_text(language, "language", MAX_LANGUAGE_CHARS)
        if cleaned is None:
            raise InvalidRequest(
                "language is required: the tag of the language spoken in the recording, such as "
                "en-US.",
                param="language",
            )
        new = Consent(id, clean_name(name), cleaned, created_at)
        load_reference(recording, param="recording")
        self._shelf.put(new, {_RECORDING: recording}, check=self._refuse_overflow)
        return new

    def rename(self, id: str, name: object) -> Consent:
        """Raises NotFound, InvalidRequest."""
        cleaned = clean_name(name)
        with self._shelf.locked():
            entry = self._find(id)
            files = self._shelf.read(entry)
            if files is None:  # not under the lock, unless somebody works around us
                raise _not_found()

            def check(now: Inventory[Consent]) -> None:
                there = now.entries.get(id)  # another server may have removed it meanwhile
                if there is None or there.files != entry.files:
                    raise _not_found()

            renamed = dataclasses.replace(entry.value, name=cleaned)
            return self._shelf.put(renamed, files, check=check).value

    def get(self, id: str) -> Consent:
        """Raises NotFound."""
        return self._find(id).value

    def check(self, consent: str | None) -> None:
        """For a voice that is to stand on it: one of ours must be here, anything else is the
        caller's own reference. Raises InvalidRequest."""
        if consent and is_consent_id(consent) and self._shelf.get(consent) is None:
            raise InvalidRequest(
                "There is no consent with this id. POST /v1/audio/voice_consents makes one.",
                param="consent",
            )

    def recording(self, id: str) -> bytes:
        """The bytes as they were sent. Raises NotFound."""
        files = self._shelf.read(self._find(id))
        if files is None:
            raise _not_found()
        return files[_RECORDING]

    def remove(self, id: str) -> None:
        """Raises NotFound."""
        if not _ID.fullmatch(id) or not self._shelf.remove(id):
            raise _not_found()

    def page(self, after: str | None, limit: int) -> tuple[list[Consent], bool]:
        """Up to `limit` consents, newest first, beginning behind the one with the id `after`; and
        whether there are more."""
        found = sorted(
            (entry.value for entry in self._shelf.entries().values()),
            key=lambda consent: (-consent.created_at, consent.id),
        )
        start = 0
        if after is not None:
            ids = [consent.id for consent in found]
            if after not in ids:
                raise InvalidRequest(
                    "after must be the id of a consent in the list.", param="after"
                )
            start = ids.index(after) + 1
        return found[start : start + limit], len(found) > start + limit

    def following(self) -> contextlib.AbstractContextManager[None]:
        """As VoiceStore.following."""
        return following(self._shelf)

    def problems(self) -> tuple[Problem, ...]:
        return self._shelf.problems()

    def _find(self, id: str) -> Entry[Consent]:
        entry = self._shelf.get(id)
        if entry is None:
            raise _not_found()
        return entry

    def _refuse_overflow(self, now: Inventory[Consent]) -> None:
        if len(now.entries) >= self._max:
            raise Conflict(
                f"There are {len(now.entries)} consents, the most allowed is {self._max}.",
                code="too_many_consents",
            )


def is_consent_id(text: str) -> bool:
    return text.startswith("cons_")


def _not_found() -> NotFound:
    return NotFound("There is no consent with this id.", param="consent")
