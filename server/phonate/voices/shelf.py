"""A shelf: things kept as folders, each whole or not there, through crashes, full disks and a
second process.

    <root>/
      voice_6f0c....00000002.9d41c0a7/   one version of one thing; never changes under this name
      quarantine/                        damaged folders, each with a .txt that says why
      .lock                              held by whoever writes
      .changes                           a new random word after every change, for other processes
      .new-*  .gone-*                    being written, being removed; swept at the next opening

How a moment's crash looks afterwards. Before the rename of `.new-*` to its name: the old version.
After it: the new one, and the old one loses by its generation and is swept. A removal renames the
older versions away first, so that none of them comes back.

Two processes: writers take turns through the lock and look at the shelf anew before they write;
readers notice the changed word or folder time at their next look. Threads: every method is safe.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Generic

from phonate.errors import Busy, Conflict, SetupError, StorageError
from phonate.voices import writer_lock
from phonate.voices.folders import (
    FOLDER_MODE,
    GONE_PREFIX,
    NEW_PREFIX,
    make_folder,
    remove_tree,
    replace_file,
    sync_folder,
    vanish,
    write_folder,
)
from phonate.voices.inventory import Entry, Inventory, Problem, Reader, Schema, T, Trouble, why
from phonate.voices.manifest import Damaged, FileSeal, FromTheFuture, Manifest
from phonate.voices.quarantine import Quarantine
from phonate.voices.writer_lock import WriterLock

log = logging.getLogger(__name__)

CHANGES_FILE = ".changes"
CHECK_AT_OPENING_S = 1.0
"""For hashing contents at the opening (1.4 GB a second and core measured). What a slow disk does
not deliver in this time is hashed at its first use, as everything is."""
MAX_FILE_BYTES = 16 << 20


class Shelf(Generic[T]):
    """Blocking; one instance a process for each root."""

    def __init__(
        self,
        root: Path,
        schema: Schema[T],
        *,
        read_only: bool = False,
        lock_timeout_s: float = writer_lock.TIMEOUT_S,
        check_at_opening_s: float = CHECK_AT_OPENING_S,
    ) -> None:
        """Opens the shelf. Raises SetupError naming the folder when it cannot be used."""
        self.root = root
        self._schema = schema
        self._reader = Reader(root, schema, max_file_bytes=MAX_FILE_BYTES)
        self._quarantine = Quarantine(root)
        self._read_only = read_only
        self._lock = WriterLock(root, schema.noun, read_only=read_only, timeout_s=lock_timeout_s)
        self._guard = threading.Lock()  # of the four below; nothing waits while holding it
        self._inventory: Inventory[T] = Inventory()
        self._seen: tuple[int, bytes] | None = None
        self._bad: dict[str, Problem] = {}
        """Folders found damaged that could not be moved away."""
        try:
            self._open(check_at_opening_s)
        except (OSError, StorageError, Busy) as error:
            raise SetupError(
                f"The folder of {schema.noun}s {root} cannot be used: {why(error)}"
            ) from error

    # --- reading

    def entries(self) -> Mapping[str, Entry[T]]:
        """id -> entry, as of now; changes of other processes included."""
        return self._refreshed().entries

    def get(self, id: str) -> Entry[T] | None:
        return self.entries().get(id)

    def problems(self) -> tuple[Problem, ...]:
        """What is not served, and why."""
        return (*self._refreshed().problems, *self._quarantine.problems())

    def reload(self) -> None:
        """Look at everything at the next question, whatever the folder's stamp says: a backup put
        back with its old times looks unchanged."""
        with self._guard:
            self._seen = None

    def read(self, entry: Entry[T]) -> dict[str, bytes] | None:
        """The files of an entry, checked. None when it is gone or was replaced meanwhile: look it
        up again. Raises StorageError when it is damaged, and sets it aside."""
        noun = self._schema.noun
        try:
            return self._reader.contents(entry)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"The stored {noun} cannot be read ({why(error)}).") from error
        except Damaged as error:
            problem = Problem(entry.folder, Trouble.DAMAGED, str(error), entry.id)
        if not self._confirmed(problem):
            return None
        raise StorageError(
            f"The stored {noun} is damaged ({problem.reason}) and was taken out of service. "
            "Register it again."
        )

    def is_intact(self, entry: Entry[T]) -> bool:
        """Whether an entry's files are what was written; if not, it is set aside."""
        try:
            return self.read(entry) is not None
        except StorageError:
            return False

    # --- writing

    def put(
        self,
        value: T,
        files: Mapping[str, bytes],
        *,
        check: Callable[[Inventory[T]], None] | None = None,
    ) -> Entry[T]:
        """Keep a thing, in place of what had its id. `check` sees the shelf under the lock and may
        refuse. After the return the thing survives a power cut; after a raise nothing changed."""
        id = self._schema.id_of(value)
        manifest = Manifest(
            self._schema.format,
            self._schema.version,
            self._schema.to_dict(value),
            {name: FileSeal.of(data) for name, data in files.items()},
        )
        with self._lock.hold("saved"):
            self._sweep_debris()
            now = self._refreshed()
            self._refuse_future(now, id)
            if check is not None:
                check(now)
            older = now.folders.get(id, ())
            generation = 1 + max((int(name.split(".")[1]) for name in older), default=0)
            folder = f"{id}.{generation:08d}.{secrets.token_hex(4)}"
            write_folder(
                self.root / folder, {**files, self._schema.manifest_name: manifest.to_bytes()}
            )
            # From here on the new version counts, whatever happens to the old one.
            self._tidy(partial(self._remove_folders, reversed(older)))
            self._announce()
            return Entry(folder, id, generation, value, manifest.files)

    def remove(self, id: str) -> bool:
        """Remove a thing with everything that was ever set aside under its id. False: there was
        none. Raises StorageError if bytes may be left; they are out of service then, and go at the
        next opening."""
        with self._lock.hold("removed completely"):
            self._sweep_debris()
            folders = self._refreshed().folders.get(id, ())
            found = self._quarantine.remove(id) or bool(folders)
            self._remove_folders(reversed(folders))
            if found:
                self._announce()
            return found

    @contextlib.contextmanager
    def locked(self, done: str = "saved") -> Iterator[None]:
        """Hold the writers' lock around something that must agree with the shelf. `done` is for
        the message: "could not be saved"."""
        with self._lock.hold(done):
            yield

    # --- inside

    def _open(self, check_s: float) -> None:
        if self._read_only:
            self._refreshed()
        else:
            existed = self.root.exists()
            make_folder(self.root)
            if existed:
                self._tighten()
            with self._lock.hold("opened"):
                self._sweep_debris()
                self._refreshed()
                self._sweep_losers()
        self._check_contents(check_s)
        for problem in self.problems():
            log.warning(
                "%s %s is not served: %s", self._schema.noun, problem.folder, problem.reason
            )

    def _tighten(self) -> None:
        """Our own folder, or one that is still empty, is made private; somebody's is not touched:
        what we put into it is private by itself."""
        names = set(os.listdir(self.root))
        is_open = stat.S_IMODE(self.root.stat().st_mode) != FOLDER_MODE
        if os.name == "posix" and is_open and (not names or writer_lock.FILE_NAME in names):
            self.root.chmod(FOLDER_MODE)

    def _sweep_debris(self) -> None:
        for name in os.listdir(self.root):
            if name.startswith((NEW_PREFIX, GONE_PREFIX)):
                self._tidy(partial(remove_tree, self.root / name))

    def _sweep_losers(self) -> None:
        """A version loses only against one whose every byte was checked."""
        for id, names in self._refreshed().folders.items():
            entry = self._refreshed().entries.get(id)
            if entry is not None and len(names) > 1 and self.is_intact(entry):
                losers = names[names.index(entry.folder) + 1 :]
                self._remove_folders(reversed(losers))
                self._announce()

    def _check_contents(self, seconds: float) -> None:
        """Hash what can be hashed in this time, in parallel (hashing lets other threads run)."""
        entries = list(self._inventory.entries.values())
        deadline = time.monotonic() + seconds

        def check(entry: Entry[T]) -> None:
            if time.monotonic() < deadline:
                self.is_intact(entry)

        if entries:
            with ThreadPoolExecutor(min(4, len(entries)), "phonate-check") as pool:
                list(pool.map(check, entries))

    def _refreshed(self) -> Inventory[T]:
        with self._guard:
            stamp = self._stamp()
            if stamp == self._seen:
                return self._inventory
            # The stamp is older than the look: a change between the two is looked at twice.
            damaged = self._take_stock()
            self._seen = stamp
            if any(p.trouble is Trouble.UNREADABLE for p in self._inventory.problems):
                self._seen = None
        if damaged:
            for problem in damaged:
                self._confirmed(problem)
            with self._guard:
                self._take_stock()
        return self._inventory

    def _take_stock(self) -> list[Problem]:
        """Look anew; the damaged folders not met before. The caller holds `_guard`."""
        self._inventory = self._reader.take_stock(self._inventory, self._bad)
        damaged = [p for p in self._inventory.problems if p.trouble is Trouble.DAMAGED]
        self._bad = {p.folder: p for p in damaged if p.folder in self._bad}
        return [p for p in damaged if p.folder not in self._bad]

    def _stamp(self) -> tuple[int, bytes] | None:
        try:
            changed = self.root.stat().st_mtime_ns
            with contextlib.suppress(FileNotFoundError):
                return changed, (self.root / CHANGES_FILE).read_bytes()
            return changed, b""
        except OSError as error:
            raise StorageError(
                f"The folder of {self._schema.noun}s cannot be read ({why(error)})."
            ) from error

    def _announce(self) -> None:
        """For the case that two changes fall into one tick of the folder's time."""
        word = secrets.token_bytes(16)
        self._tidy(partial(replace_file, self.root / CHANGES_FILE, word, sync=False))

    def _refuse_future(self, now: Inventory[T], id: str) -> None:
        problem = now.from_the_future(id)
        if problem is not None:
            raise Conflict(
                f"There is a {self._schema.noun} of this name, but {problem.reason}. "
                "Upgrade phonate or delete it first.",
                param="name",
            )

    def _remove_folders(self, oldest_first: Iterator[str]) -> None:
        gone = [vanish(self.root / name) for name in oldest_first]
        for path in gone:
            remove_tree(path)
        if gone:
            sync_folder(self.root)

    def _tidy(self, action: Callable[[], object]) -> None:
        """After the commit nothing may turn success into failure; what is left is swept later."""
        try:
            action()
        except OSError as error:
            log.warning("left for the next start to tidy up: %s", why(error))

    def _confirmed(self, problem: Problem) -> bool:
        """Take a damaged folder out of service, unless a second look under the lock finds it gone
        (another process removed it while we read it) or whole. False: look it up again."""
        try:
            with self._lock.hold("set aside"):
                try:
                    self._reader.contents(self._reader.load(problem.folder))
                    return False
                except FileNotFoundError:
                    return False
                except Damaged:
                    self._quarantine.take(problem.folder, problem.reason)
            log.error("%s %s was set aside: %s", self._schema.noun, problem.folder, problem.reason)
            self._announce()
        except (StorageError, Busy, FromTheFuture, OSError) as error:
            log.warning("%s stays where it is: %s", problem.folder, why(error))
            with self._guard:
                self._bad[problem.folder] = problem
                self._seen = None
        return True
