"""The things of one shelf as objects of a bucket, which decides what is true for all servers.

    index/<id>.<generation>.json       voice.json as in a folder, which also names its upload;
                                       an empty object says: removed; "{}": replaced
    files/<id>/<upload>/<name>         the files; `upload` is random, never used twice

A version is immutable, so that one kind of conditional write is enough, the one that every S3 has:
create where nothing is. Who wants to change a thing creates its next generation, and of two who try
it one is told that it is taken. That holds only while a generation that was taken stays so: what is
replaced is overwritten, not deleted. Who looked before two others wrote would else find the place
of the first of them free again, and create a version that nobody ever sees. Files are written
before, so that what the index names is whole.

What a crash leaves: files that no version names, and versions below the newest. Both are invisible;
`sweep` removes them, files and bare versions only after GRACE_S, since somebody may still be about
to name them, or to create the generation after one that he saw.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from phonate.errors import PhonateError
from phonate.voices.inventory import Schema
from phonate.voices.manifest import (
    MAX_MANIFEST_BYTES,
    Damaged,
    FileSeal,
    FromTheFuture,
    Manifest,
)
from phonate.voices.objects import Listed, Missing, Objects, Taken, Unreachable

log = logging.getLogger(__name__)

INDEX, FILES = "index", "files"
REPLACED = b"{}"
GRACE_S = 3600.0
"""Far above the time that any write takes, and above what clocks differ by."""


@dataclass(frozen=True, slots=True)
class Version:
    """One object of the index."""

    id: str
    generation: int
    e_tag: str
    n_bytes: int
    changed_at: float

    @property
    def is_removal(self) -> bool:
        return self.n_bytes == 0

    @property
    def is_bare(self) -> bool:
        """A removal, or replaced: it names nothing and only keeps its place."""
        return self.n_bytes <= len(REPLACED)

    @property
    def key(self) -> str:
        return key_of(self.id, self.generation)

    @property
    def folder(self) -> str:
        """What it is called in the local copy: the same bytes have the same name everywhere."""
        nonce = hashlib.sha256(self.e_tag.encode()).hexdigest()[:8]
        return f"{self.id}.{self.generation:08d}.{nonce}"


Index: TypeAlias = Mapping[str, tuple[Version, ...]]
"""id -> its versions, newest first."""


def key_of(id: str, generation: int) -> str:
    return f"{INDEX}/{id}.{generation:08d}.json"


def current(index: Index) -> dict[str, Version]:
    """id -> the version that counts."""
    return {id: found[0] for id, found in index.items() if not found[0].is_removal}


def next_generation(versions: tuple[Version, ...]) -> int:
    return versions[0].generation + 1 if versions else 1


class Ledger:
    """Blocking; any thread. Raises Unreachable wherever the bucket does not help."""

    def __init__(self, objects: Objects, schema: Schema[Any], *, max_file_bytes: int) -> None:
        self._objects = objects
        self._schema = schema
        self._max_file_bytes = max_file_bytes
        self._name = re.compile(rf"{INDEX}/({schema.id_pattern})\.([0-9]{{8}})\.json")
        self._file = re.compile(rf"{FILES}/({schema.id_pattern})/([0-9a-f]{{32}})/[^/]+")

    def look(self) -> Index:
        found: dict[str, list[Version]] = {}
        for item in self._objects.list(INDEX):
            if match := self._name.fullmatch(item.key):
                version = Version(
                    match[1], int(match[2]), item.e_tag, item.n_bytes, item.changed_at
                )
                found.setdefault(version.id, []).append(version)
        return {
            id: tuple(sorted(versions, key=lambda v: v.generation, reverse=True))
            for id, versions in sorted(found.items())
        }

    def fetch(self, version: Version) -> dict[str, bytes]:
        """Every file, checked, the manifest last. Raises Missing when the version is gone, else
        Damaged or FromTheFuture."""
        data, _ = self._objects.get(version.key, max_bytes=MAX_MANIFEST_BYTES)
        manifest = self._manifest(data)
        try:
            value = self._schema.from_dict(manifest.value, manifest.files)
        except (PhonateError, TypeError, ValueError, KeyError) as error:
            raise Damaged(f"its manifest describes no {self._schema.noun}: {error}") from error
        if self._schema.id_of(value) != version.id:
            raise Damaged(f"it holds {self._schema.id_of(value)}, not what its key says")
        files = {}
        for name, seal in manifest.files.items():
            files[name] = self._fetch_file(_file_key(version.id, manifest.upload, name), seal)
        return {**files, self._schema.manifest_name: data}

    def upload(self, id: str, upload: str, files: Mapping[str, bytes]) -> None:
        for name, data in files.items():
            self._objects.put(_file_key(id, upload, name), data)

    def take_back(self, id: str, upload: str, names: Iterable[str]) -> None:
        """Remove files that no version will name."""
        self._objects.delete(_file_key(id, upload, name) for name in names)

    def commit(self, id: str, generation: int, manifest: bytes) -> Version:
        """Create a version; with empty bytes, a removal. Raises Taken."""
        key = key_of(id, generation)
        try:
            e_tag = self._objects.create(key, manifest)
        except (Taken, Unreachable):
            # An answer that got lost, or a repetition that met the first attempt: the random
            # upload in a manifest tells whether it is ours. Two removals are one.
            e_tag = self._tag_if(key, manifest)
            if not e_tag:
                raise
        return Version(id, generation, e_tag, len(manifest), time.time())

    def clear(self, versions: Iterable[Version]) -> None:
        """Make versions bare, their files first: while the files are there, something names them.
        What a damaged version named is left to `sweep`."""
        for version in versions:
            if version.is_bare:
                continue
            with contextlib.suppress(Missing, Damaged, FromTheFuture):
                data, _ = self._objects.get(version.key, max_bytes=MAX_MANIFEST_BYTES)
                manifest = self._manifest(data)
                self.take_back(version.id, manifest.upload or "", manifest.files)
            self._objects.put(version.key, REPLACED)

    def sweep(self, *, grace_s: float = GRACE_S) -> None:
        """Remove what no server needs any more."""
        before = time.time() - grace_s
        # Files are listed before the index: what is named meanwhile is seen as named.
        uploads: dict[str, dict[str, list[Listed]]] = {}
        for item in self._objects.list(FILES):
            if match := self._file.fullmatch(item.key):
                uploads.setdefault(match[1], {}).setdefault(match[2], []).append(item)
        index = self.look()
        for versions in index.values():
            newest, older = versions[0], versions[1:]
            if any(not v.is_bare for v in older) and (newest.is_removal or self._is_whole(newest)):
                self.clear(older)
            # The oldest first: the newest counts for as long as there is another.
            for version in reversed(versions):
                if not version.is_bare or version.changed_at >= before:
                    break
                self._objects.delete([version.key])
        for id, found in uploads.items():
            named = self._named(index.get(id, ()), found)
            for upload, items in found.items():
                if upload not in named and all(item.changed_at < before for item in items):
                    log.info("files of %s that nothing names are removed", id)
                    self._objects.delete(item.key for item in items)

    def _is_whole(self, version: Version) -> bool:
        """A version loses only against one whose every byte was checked."""
        try:
            self.fetch(version)
        except (Missing, Damaged, FromTheFuture):
            return False
        return True

    def _named(self, versions: tuple[Version, ...], found: Mapping[str, object]) -> set[str]:
        """Which uploads of an id are to be kept; all where it cannot be told."""
        if not versions or versions[0].is_removal:
            return set()
        if len(found) == 1:
            return set(found)
        try:
            data, _ = self._objects.get(versions[0].key, max_bytes=MAX_MANIFEST_BYTES)
            return {self._manifest(data).upload or ""}
        except (Missing, Damaged, FromTheFuture):
            return set(found)

    def _fetch_file(self, key: str, seal: FileSeal) -> bytes:
        name = key.rpartition("/")[2]
        if seal.n_bytes > self._max_file_bytes:
            raise Damaged(f"{name} has {seal.n_bytes} bytes, above {self._max_file_bytes}")
        try:
            data, _ = self._objects.get(key, max_bytes=seal.n_bytes)
        except Missing as error:
            raise Damaged(f"{name} is missing") from error
        if FileSeal.of(data) != seal:
            raise Damaged(f"{name} does not match its checksum")
        return data

    def _manifest(self, data: bytes) -> Manifest:
        manifest = Manifest.from_bytes(
            data, format=self._schema.format, version=self._schema.version
        )
        if manifest.upload is None:
            raise Damaged("its manifest names no upload")
        return manifest

    def _tag_if(self, key: str, data: bytes) -> str:
        with contextlib.suppress(Unreachable, Missing, Damaged):
            found, e_tag = self._objects.get(key, max_bytes=MAX_MANIFEST_BYTES)
            if found == data:
                return e_tag
        return ""


def new_upload() -> str:
    return secrets.token_hex(16)


def _file_key(id: str, upload: str | None, name: str) -> str:
    return f"{FILES}/{id}/{upload}/{name}"
