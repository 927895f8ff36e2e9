"""Reading a shelf: which folders there are, which of them are whole, and what is wrong with the
others. Writes nothing, so it needs no lock.

A folder is named `<id>.<generation>.<nonce>` and never changes once it has that name. Of several
generations of one id the highest whole one counts; the others are what a crash left behind.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Generic, TypeVar

from phonate.errors import PhonateError
from phonate.voices.folders import is_plain_folder, read_file
from phonate.voices.manifest import (
    MAX_MANIFEST_BYTES,
    Damaged,
    FileSeal,
    FromTheFuture,
    Manifest,
)

T = TypeVar("T")

STRAY_REASON = "it was not put here by phonate; 'phonate voices import' takes it in"


@dataclass(frozen=True, slots=True)
class Schema(Generic[T]):
    """What a shelf needs to know about the things on it."""

    noun: str
    """For messages: voice, consent."""
    id_pattern: str
    manifest_name: str
    format: str
    version: int
    to_dict: Callable[[T], dict[str, Any]]
    from_dict: Callable[[dict[str, Any], Mapping[str, FileSeal]], T]
    """Raises Damaged, or anything from the `errors` tree, for a value that cannot be."""
    id_of: Callable[[T], str]

    def folder_pattern(self) -> re.Pattern[str]:
        return re.compile(rf"({self.id_pattern})\.([0-9]{{8}})\.([0-9a-f]{{8}})")


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """One whole folder."""

    folder: str
    id: str
    generation: int
    value: T
    files: Mapping[str, FileSeal]

    @property
    def is_starter(self) -> bool:
        """Read from a folder with a name of its own; generations on a shelf begin with 1."""
        return self.generation == 0

    @property
    def n_bytes(self) -> int:
        return sum(seal.n_bytes for seal in self.files.values())


class Trouble(str, Enum):
    """Why a folder is not served."""

    DAMAGED = "damaged"
    """Not what was written. The shelf sets it aside if it can."""
    SET_ASIDE = "set_aside"
    FROM_THE_FUTURE = "from_the_future"
    """A newer phonate can read it: left where it is."""
    UNREADABLE = "unreadable"
    """The system said no (permissions, too many open files): left, and tried again."""
    STRAY = "stray"
    """Somebody's folder with a manifest in it: worth a word, not worth touching."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One folder that is not served, and why."""

    folder: str
    trouble: Trouble
    reason: str
    id: str | None = None
    """None where the folder's name does not tell."""


@dataclass(frozen=True, slots=True)
class Inventory(Generic[T]):
    """What one look at the shelf saw. Never changes."""

    entries: Mapping[str, Entry[T]] = field(default_factory=dict)
    """id -> the version that counts."""
    problems: tuple[Problem, ...] = ()
    folders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """id -> all its folders, newest first: the losers are to be swept."""
    n_bytes: int = 0

    def from_the_future(self, id: str) -> Problem | None:
        return next(
            (p for p in self.problems if p.id == id and p.trouble is Trouble.FROM_THE_FUTURE), None
        )


class Reader(Generic[T]):
    """Reads the folders of one root by one schema."""

    def __init__(self, root: Path, schema: Schema[T], *, max_file_bytes: int) -> None:
        self.root = root
        self.schema = schema
        self._pattern = schema.folder_pattern()
        self._max_file_bytes = max_file_bytes

    def take_stock(self, known: Inventory[T], bad: Mapping[str, Problem]) -> Inventory[T]:
        """Look at everything. What `known` holds under the same folder name is not read again;
        folders in `bad` are passed over."""
        by_folder = {entry.folder: entry for entry in known.entries.values()}
        versions: dict[str, list[tuple[int, str]]] = {}
        problems: list[Problem] = []
        with os.scandir(self.root) as items:
            for item in items:
                match = self._pattern.fullmatch(item.name)
                if match:
                    versions.setdefault(match[1], []).append((int(match[2]), item.name))
                elif self._is_stray(Path(item.path)):
                    problems.append(Problem(_printable(item.name), Trouble.STRAY, STRAY_REASON))
        entries: dict[str, Entry[T]] = {}
        folders: dict[str, tuple[str, ...]] = {}
        for id, found in sorted(versions.items()):
            names = tuple(name for _, name in sorted(found, reverse=True))
            folders[id] = names
            entry, troubles = self._newest_whole(names, by_folder, bad)
            problems += troubles
            if entry is not None:
                entries[id] = entry
        n_bytes = sum(entry.n_bytes for entry in entries.values())
        return Inventory(entries, tuple(problems), folders, n_bytes)

    def _newest_whole(
        self, names: Iterable[str], known: Mapping[str, Entry[T]], bad: Mapping[str, Problem]
    ) -> tuple[Entry[T] | None, list[Problem]]:
        troubles: list[Problem] = []
        for name in names:
            if name in bad:
                troubles.append(bad[name])
                continue
            try:
                return known.get(name) or self.load(name), troubles
            except FileNotFoundError:
                continue  # removed by another process between the listing and now
            except FromTheFuture as error:
                future = Problem(name, Trouble.FROM_THE_FUTURE, str(error), _id_in(name))
                return None, [*troubles, future]
            except Damaged as error:
                troubles.append(Problem(name, Trouble.DAMAGED, str(error), _id_in(name)))
            except OSError as error:
                troubles.append(Problem(name, Trouble.UNREADABLE, why(error), _id_in(name)))
                break  # an older version must not take its place only because of this
        return None, troubles

    def load(self, folder: str) -> Entry[T]:
        """Read a folder's manifest and check that its files are there with the right sizes.
        Raises FileNotFoundError when the folder is gone, else Damaged, FromTheFuture, OSError."""
        match = self._pattern.fullmatch(folder)
        if match is None:
            raise Damaged("its name is not a stored folder's")
        return self._load(folder, match[1], int(match[2]))

    def load_named(self, folder: str) -> Entry[T]:
        """`load` for a folder with a name of its own, as starter voices have."""
        return self._load(folder, None, 0)

    def _load(self, folder: str, id: str | None, generation: int) -> Entry[T]:
        path = self.root / folder
        if not is_plain_folder(path):
            path.lstat()  # FileNotFoundError when it is gone
            raise Damaged("it is a symbolic link or a file where a folder belongs")
        data = self._read(path, self.schema.manifest_name, MAX_MANIFEST_BYTES)
        manifest = Manifest.from_bytes(data, format=self.schema.format, version=self.schema.version)
        for name, seal in manifest.files.items():
            self._check_size(path / name, seal)
        try:
            value = self.schema.from_dict(manifest.value, manifest.files)
        except (PhonateError, TypeError, ValueError, KeyError) as error:
            raise Damaged(f"its manifest describes no {self.schema.noun}: {error}") from error
        found = self.schema.id_of(value)
        if id is not None and found != id:
            raise Damaged(f"it holds {found}, not what its folder's name says")
        return Entry(folder, found, generation, value, manifest.files)

    def contents(self, entry: Entry[T]) -> dict[str, bytes]:
        """Every file's bytes, their hashes checked. Raises like `load`."""
        path = self.root / entry.folder
        result = {}
        for name, seal in entry.files.items():
            data = self._read(path, name, seal.n_bytes)
            if FileSeal.of(data) != seal:
                raise Damaged(f"{name} does not match its checksum")
            result[name] = data
        return result

    def _check_size(self, path: Path, seal: FileSeal) -> None:
        if seal.n_bytes > self._max_file_bytes:
            raise Damaged(f"{path.name} has {seal.n_bytes} bytes, above {self._max_file_bytes}")
        try:
            status = path.lstat()
        except FileNotFoundError as error:
            raise self._missing(path) from error
        if not stat.S_ISREG(status.st_mode):
            raise Damaged(f"{path.name} is a symbolic link or no regular file")
        if status.st_size != seal.n_bytes:
            raise Damaged(f"{path.name} has {status.st_size} bytes instead of {seal.n_bytes}")

    def _read(self, path: Path, name: str, max_bytes: int) -> bytes:
        try:
            return read_file(path / name, max_bytes=max_bytes)
        except FileNotFoundError as error:
            raise self._missing(path / name) from error

    def _missing(self, file: Path) -> Exception:
        """A file is missing: damage if its folder is still there, else the folder is gone."""
        if is_plain_folder(file.parent):
            return Damaged(f"{file.name} is missing")
        return FileNotFoundError(file.parent.name)

    def _is_stray(self, path: Path) -> bool:
        return not path.name.startswith(".") and (path / self.schema.manifest_name).is_file()


def why(error: Exception) -> str:
    """An exception as words, without the path that an OSError carries: they reach clients."""
    if isinstance(error, OSError):
        return (error.strerror or type(error).__name__).lower()
    return str(error)


def _id_in(folder: str) -> str:
    return folder.partition(".")[0]


def _printable(name: str) -> str:
    """Names on disk are bytes; those that are not UTF-8 come as lone surrogates."""
    return os.fsencode(name).decode(errors="replace")
