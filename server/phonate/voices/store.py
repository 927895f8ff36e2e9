"""The voices people registered, on disk or in a bucket.

One folder a voice on a shelf (shelf.py says what that promises), and a cache of derived latents
that belongs to it. Knows nothing of engines: who wants latents brings an encoder (library.py).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from phonate.engine.base import Reference
from phonate.errors import Conflict
from phonate.voices.draft import Draft
from phonate.voices.inventory import Entry, Inventory, Problem, Schema
from phonate.voices.latent_cache import LatentCache
from phonate.voices.manifest import Damaged, FileSeal
from phonate.voices.open_shelf import (
    AnyShelf,
    following,
    is_reachable,
    local_root,
    look,
    open_shelf,
)
from phonate.voices.place import Place
from phonate.voices.voice import (
    FILES,
    Material,
    Voice,
    clean_name,
    is_voice_id,
    voice_id,
)

log = logging.getLogger(__name__)

MAX_VOICES = 1000
MAX_TOTAL_BYTES = 2 << 30
"""1,000 references of 30 s at 48,000 bytes a second are 1.4 GB."""

FORMAT = "phonate-voice"
FORMAT_VERSION = 1

StoredVoice: TypeAlias = Entry[Voice]


def voice_to_dict(voice: Voice) -> dict[str, Any]:
    """The manifest's value; absent fields are left out."""
    fields = {
        "id": voice.id,
        "name": voice.name,
        "kind": voice.kind,
        "material": voice.material.value,
        "created_at": voice.created_at,
        "language": voice.language,
        "description": voice.description,
        "ref_text": voice.ref_text,
        "consent": voice.consent,
    }
    return {key: value for key, value in fields.items() if value is not None}


def voice_from_dict(value: dict[str, Any], files: Mapping[str, FileSeal]) -> Voice:
    """Raises Damaged, KeyError, ValueError, TypeError or InvalidRequest for what is no voice."""
    voice = Voice(
        id=value["id"],
        name=clean_name(value["name"]),
        kind=value["kind"],
        material=Material(value["material"]),
        created_at=value["created_at"],
        language=_optional_text(value, "language"),
        description=_optional_text(value, "description"),
        ref_text=_optional_text(value, "ref_text"),
        consent=_optional_text(value, "consent"),
    )
    if voice.kind not in ("registered", "designed") or type(voice.created_at) is not int:
        raise Damaged("its kind or its time is impossible")
    if voice.id != voice_id(voice.name):
        raise Damaged("its id does not belong to its name")
    if set(files) != set(FILES[voice.material]):
        raise Damaged(f"a voice of {voice.material.value} has other files")
    return voice


VOICE_SCHEMA: Schema[Voice] = Schema(
    noun="voice",
    id_pattern="voice_[0-9a-f]{24}",
    manifest_name="voice.json",
    format=FORMAT,
    version=FORMAT_VERSION,
    to_dict=voice_to_dict,
    from_dict=voice_from_dict,
    id_of=lambda voice: voice.id,
)


class VoiceStore:
    """Blocking; any thread; one instance a process for each place. See Shelf for errors."""

    def __init__(
        self,
        place: Place,
        *,
        max_voices: int = MAX_VOICES,
        max_total_bytes: int = MAX_TOTAL_BYTES,
        read_only: bool = False,
    ) -> None:
        self._cache = LatentCache(local_root(place) / "cache")
        self._shelf: AnyShelf[Voice] = open_shelf(
            place, VOICE_SCHEMA, read_only=read_only, on_change=self._drop_latents
        )
        self._max_voices = max_voices
        self._max_total_bytes = max_total_bytes
        self.read_only = read_only

    def entries(self) -> Mapping[str, StoredVoice]:
        """id -> the version that counts now; of a bucket, at the last look."""
        return self._shelf.entries()

    def get(self, id: str) -> StoredVoice | None:
        """Like `entries`, but a bucket is asked for what is not here."""
        return self._shelf.get(id)

    @property
    def is_reachable(self) -> bool:
        """False while a bucket does not answer and the local copy is served."""
        return is_reachable(self._shelf)

    def look(self) -> None:
        """See changes by other machines now, where a decision hangs on them."""
        look(self._shelf)

    def following(self) -> contextlib.AbstractContextManager[None]:
        """Meanwhile changes by other machines are noticed within seconds."""
        return following(self._shelf)

    def voices(self) -> tuple[Voice, ...]:
        """Oldest first."""
        found = (entry.value for entry in self.entries().values())
        return tuple(sorted(found, key=lambda voice: (voice.created_at, voice.name)))

    def find(self, name_or_id: str) -> StoredVoice | None:
        """By id, else by name in any case. InvalidRequest for a name that could never be one."""
        return self.get(id_for(name_or_id))

    def files(self, entry: StoredVoice) -> dict[str, bytes] | None:
        """Checked bytes; None when the entry is no longer current. See Shelf.read."""
        return self._shelf.read(entry)

    def reload(self) -> None:
        self._shelf.reload()

    def problems(self) -> tuple[Problem, ...]:
        """What is on disk and not served, with the reasons."""
        return self._shelf.problems()

    def add(
        self, draft: Draft, *, replace: bool = True, created_at: int | None = None
    ) -> StoredVoice:
        """Keep a voice for good. Raises Conflict when the store is full, or the name is taken and
        `replace` is off; then, and on any other error, what was there before is untouched."""

        def check(now: Inventory[Voice]) -> None:
            old = now.entries.get(draft.id)
            if old is not None and not replace:
                raise Conflict(
                    f"There is already a voice {old.value.name!r}. Choose another name, or "
                    "delete that voice first.",
                    param="name",
                )
            self._refuse_overflow(draft, now)

        voice = draft.to_voice(int(time.time()) if created_at is None else created_at)
        with self._shelf.locked():
            entry = self._shelf.put(voice, draft.files, check=check)
            self._drop_latents(voice.id)
            return entry

    def remove(self, name_or_id: str) -> bool:
        """Remove a voice and everything derived from it. False: there was none."""
        id = id_for(name_or_id)
        with self._shelf.locked("removed completely"):
            self._cache.drop(id)
            return self._shelf.remove(id)

    # --- derived latents

    def cached_latents(self, entry: StoredVoice, key: str, text: str | None) -> Reference | None:
        return self._cache.get(entry.id, key, text)

    def keep_latents(self, entry: StoredVoice, key: str, reference: Reference) -> None:
        """Put latents into the cache unless the voice has changed meanwhile. Never raises for a
        full or read-only disk: they are made again next time."""
        if self.read_only:
            return
        try:
            with self._shelf.locked():
                now = self.entries().get(entry.id)
                expected = None if entry.is_starter else entry.folder
                if (now.folder if now else None) == expected:
                    self._cache.put(entry.id, key, reference)
        except Exception as error:
            log.warning("latents were not cached: %s", error)

    def sweep_latents(self, also_live: Collection[str] = ()) -> None:
        """Remove latents of voices that are gone."""
        if not self.read_only:
            with self._shelf.locked():
                self._cache.sweep({*self.entries(), *also_live})

    def _drop_latents(self, id: str) -> None:
        try:
            self._cache.drop(id)
        except OSError as error:
            log.warning("old latents of a replaced voice stay until the next start: %s", error)

    def _refuse_overflow(self, draft: Draft, now: Inventory[Voice]) -> None:
        old = now.entries.get(draft.id)
        if old is None and len(now.entries) >= self._max_voices:
            raise Conflict(
                f"There are {len(now.entries)} voices, the most allowed is {self._max_voices}. "
                "Delete one, or raise --max-voices.",
                code="too_many_voices",
            )
        size = sum(len(data) for data in draft.files.values())
        after = now.n_bytes - (old.n_bytes if old else 0) + size
        if after > self._max_total_bytes:
            raise Conflict(
                f"The voices would take {after} bytes, the most allowed is "
                f"{self._max_total_bytes}. Delete some voices first.",
                code="voice_storage_full",
            )


def id_for(name_or_id: str) -> str:
    """Ids are never names (voice.new_name), so there is no doubt which one is meant."""
    name = clean_name(name_or_id, param="voice")
    return name.casefold() if is_voice_id(name.casefold()) else voice_id(name)


def _optional_text(value: dict[str, Any], key: str) -> str | None:
    text = value.get(key)
    if text is not None and not isinstance(text, str):
        raise Damaged(f"its {key} is not text")
    return text
