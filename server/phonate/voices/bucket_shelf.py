"""A shelf whose truth is in a bucket, for several servers: ledger.py says how it lies there.

Reading is from the local copy (mirror.py), which goes on when the bucket does not answer. A look at
the list of the bucket brings the copy up to date: every few seconds while `following`, before every
change, and when something asked for is not here. A change is made in the bucket first and counts
when its one conditional write has succeeded.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Generic

from phonate.errors import Busy, Conflict, PhonateError, SetupError, StorageError
from phonate.voices.inventory import Entry, Inventory, Problem, Schema, T, Trouble, why
from phonate.voices.ledger import (
    Index,
    Ledger,
    Version,
    current,
    new_upload,
    next_generation,
)
from phonate.voices.manifest import Damaged, FileSeal, FromTheFuture, Manifest
from phonate.voices.mirror import Mirror, mirror_folder
from phonate.voices.objects import Denied, Missing, Objects, Taken, Unreachable
from phonate.voices.place import Bucket
from phonate.voices.shelf import MAX_FILE_BYTES

log = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0
SWEEP_EVERY_S = 600.0
FETCH_AGAIN_S = 60.0
"""A version found damaged in the bucket is read again only after this."""
MISS_PAUSE_S = 0.25
"""Unknown names make no more lists than this."""
ATTEMPTS = 8
N_FETCHERS = 8


class BucketShelf(Generic[T]):
    """Blocking; any thread; one instance a process for each prefix."""

    def __init__(
        self,
        bucket: Bucket,
        schema: Schema[T],
        *,
        read_only: bool = False,
        objects: Objects | None = None,
        root: Path | None = None,
        on_change: Callable[[str], None] = lambda id: None,
    ) -> None:
        """Raises SetupError when the bucket cannot be read and there is no local copy. `on_change`
        hears of ids whose version here was removed or replaced, under the lock."""
        self._bucket, self._schema, self._read_only = bucket, schema, read_only
        objects = Objects(bucket) if objects is None else objects
        self.root = mirror_folder(bucket, objects.endpoint) if root is None else root
        self._ledger = Ledger(objects, schema, max_file_bytes=MAX_FILE_BYTES)
        self._mirror: Mirror[T] = Mirror(self.root, schema)
        self._on_change = on_change
        self._bad: dict[str, tuple[Problem, float]] = {}
        self._down: str | None = None
        self._looked_at = 0.0
        self._wake = threading.Event()
        try:
            self._look()
            if not read_only:
                self._sweep()
        except Unreachable as error:
            if not self._mirror.was_complete:
                raise SetupError(
                    f"--voice-dir {bucket} cannot be read: {error}. Check its name, AWS_REGION, "
                    "AWS_ENDPOINT_URL and the credentials."
                ) from error
        except (StorageError, Busy) as error:
            raise SetupError(f"The local copy of {bucket} in {self.root}: {error}") from error

    # --- reading

    def entries(self) -> Mapping[str, Entry[T]]:
        """id -> entry, as of the last look."""
        return self._mirror.entries()

    def get(self, id: str) -> Entry[T] | None:
        """Looks into the bucket for what is not here, unless it is known to be out of reach."""
        found = self._mirror.get(id)
        is_time = time.monotonic() - self._looked_at > MISS_PAUSE_S
        if found is None and self.is_reachable and is_time:
            self.look()
            found = self._mirror.get(id)
        return found

    def problems(self) -> tuple[Problem, ...]:
        down = self._down
        unreachable = (
            (Problem(str(self._bucket), Trouble.UNREADABLE, f"{down}; the local copy is served"),)
            if down
            else ()
        )
        return (*unreachable, *self._damage(), *self._mirror.problems())

    def reload(self) -> None:
        """Look again at once, if somebody is `following`."""
        self._mirror.reload()
        self._wake.set()

    def look(self) -> None:
        """Bring the local copy up to date, if that is possible now."""
        try:
            self._look()
        except (Unreachable, PhonateError, OSError) as error:
            log.debug("%s: no look: %s", self._bucket, error)

    def read(self, entry: Entry[T]) -> dict[str, bytes] | None:
        """As Shelf.read; a local copy that is damaged is fetched again."""
        try:
            return self._mirror.read(entry)
        except StorageError:
            self.look()
            if self._mirror.get(entry.id) != entry:
                raise
            return self._mirror.read(entry)

    @property
    def is_reachable(self) -> bool:
        """Whether the last look succeeded."""
        return self._down is None

    # --- writing

    def put(
        self,
        value: T,
        files: Mapping[str, bytes],
        *,
        check: Callable[[Inventory[T]], None] | None = None,
    ) -> Entry[T]:
        """As Shelf.put. `check` sees what the bucket had at the moment that the write builds on;
        when another server was faster, it is asked again."""
        id = self._schema.id_of(value)
        seals = {name: FileSeal.of(data) for name, data in files.items()}
        upload = new_upload()
        manifest = Manifest(
            self._schema.format, self._schema.version, self._schema.to_dict(value), seals, upload
        ).to_bytes()
        with self._writing("saved"):
            version, older = self._commit_put(id, upload, manifest, files, check)
            # From here on it counts, for all servers.
            self._forget_damage(id)
            self._tidy(partial(self._keep_own, version, manifest, files))
            self._tidy(partial(self._ledger.clear, older))
        return Entry(version.folder, id, version.generation, value, seals)

    def remove(self, id: str) -> bool:
        """As Shelf.remove: gone for all servers when the removal is in the index, and its bytes
        right after it."""
        with self._writing("removed completely"):
            for _ in range(ATTEMPTS):
                versions = self._look().get(id, ())
                if not versions or versions[0].is_removal:
                    found = self._mirror.remove(id)
                    break
                with contextlib.suppress(Taken):
                    self._ledger.commit(id, next_generation(versions), b"")
                    found = True
                    self._forget_damage(id)
                    self._mirror.remove(id)
                    break
            else:
                raise _contended(self._schema.noun)
            self._on_change(id)
            try:
                self._ledger.clear(versions)
            except Unreachable as error:
                raise StorageError(
                    f"The {self._schema.noun} is out of service, but not all of its bytes could "
                    f"be removed ({error}). They go at the next tidying up."
                ) from error
            return found

    @contextlib.contextmanager
    def locked(self, done: str = "saved") -> Iterator[None]:
        """Hold the lock of the local copy; other machines are not kept from anything."""
        with self._mirror.locked(done):
            yield

    @contextlib.contextmanager
    def following(self, every_s: float = LOOK_EVERY_S) -> Iterator[None]:
        """Look into the bucket every few seconds meanwhile."""
        stopped = threading.Event()
        thread = threading.Thread(
            target=self._follow, args=(stopped, every_s), name="phonate-bucket", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            self._wake.set()
            thread.join(10)

    # --- inside

    def _commit_put(
        self,
        id: str,
        upload: str,
        manifest: bytes,
        files: Mapping[str, bytes],
        check: Callable[[Inventory[T]], None] | None,
    ) -> tuple[Version, tuple[Version, ...]]:
        """The new version, and those that it replaces."""
        uploaded = False
        try:
            for _ in range(ATTEMPTS):
                older = self._look().get(id, ())
                self._refuse_future(id)
                if check is not None:
                    check(self._inventory())
                if not uploaded:
                    uploaded = True
                    self._ledger.upload(id, upload, files)
                with contextlib.suppress(Taken):
                    return self._ledger.commit(id, next_generation(older), manifest), older
            raise _contended(self._schema.noun)
        except PhonateError:  # refused for sure; after Unreachable it may have arrived all the same
            if uploaded:
                self._tidy(partial(self._ledger.take_back, id, upload, files))
            raise

    def _keep_own(self, version: Version, manifest: bytes, files: Mapping[str, bytes]) -> None:
        older = self._mirror.folders().get(version.id, ())
        self._mirror.take_in(version.folder, {**files, self._schema.manifest_name: manifest})
        self._mirror.drop(name for name in older if name != version.folder)
        self._on_change(version.id)

    def _look(self) -> Index:
        """Bring the local copy up to date; the bucket's index. Raises Unreachable."""
        self._looked_at = time.monotonic()
        try:
            index = self._ledger.look()
            wanted = {version.folder: version for version in current(index).values()}
            self._bad = {folder: bad for folder, bad in self._bad.items() if folder in wanted}
            here = {name for names in self._mirror.folders().values() for name in names}
            now = time.monotonic()
            missing = [
                version
                for folder, version in wanted.items()
                if folder not in here and now >= self._bad.get(folder, (None, now))[1]
            ]
            self._bring(missing)
            if missing or here - wanted.keys():
                self._prune()
            if not self._mirror.was_complete:
                self._mirror.note_complete()
        except Unreachable as error:
            if self._down is None and self._mirror.was_complete:
                log.warning("%s: %s; the local copy is served", self._bucket, error)
            self._down = str(error)
            raise
        if self._down is not None:
            log.info("%s answers again", self._bucket)
        self._down = None
        return index

    def _bring(self, missing: list[Version]) -> None:
        """Fetch versions, several at a time, and no more of them in memory than that."""
        if not missing:
            return
        with ThreadPoolExecutor(min(N_FETCHERS, len(missing)), "phonate-fetch") as pool:
            for start in range(0, len(missing), N_FETCHERS):
                some = missing[start : start + N_FETCHERS]
                for version, files in zip(some, pool.map(self._fetch, some), strict=True):
                    if files is not None:
                        self._mirror.take_in(version.folder, files)

    def _fetch(self, version: Version) -> dict[str, bytes] | None:
        try:
            files = self._ledger.fetch(version)
        except Missing:
            return None  # replaced or removed since the look
        except FromTheFuture as error:
            trouble, reason = Trouble.FROM_THE_FUTURE, str(error)
        except Damaged as error:
            trouble, reason = Trouble.DAMAGED, f"{error}, in the bucket"
        else:
            self._bad.pop(version.folder, None)
            return files
        if current(self._ledger.look()).get(version.id) == version:
            if version.folder not in self._bad:
                log.error("%s %s is not served: %s", self._schema.noun, version.folder, reason)
            problem = Problem(version.folder, trouble, reason, version.id)
            self._bad[version.folder] = (problem, time.monotonic() + FETCH_AGAIN_S)
        return None

    def _prune(self) -> None:
        """Drop what the bucket has no more. Looks anew under the lock, since another process may
        have brought newer ones; a version stays until its successor is here whole."""
        with self._mirror.locked("brought up to date"):
            now = current(self._ledger.look())
            for id, names in list(self._mirror.folders().items()):
                version = now.get(id)
                if version is None:
                    self._mirror.remove(id)
                    self._on_change(id)
                elif version.folder in names and len(names) > 1:
                    self._mirror.drop(name for name in names if name != version.folder)
                    self._on_change(id)

    def _sweep(self) -> None:
        self._tidy(self._ledger.sweep)

    def _follow(self, stopped: threading.Event, every_s: float) -> None:
        swept_at = time.monotonic()
        while not stopped.is_set():
            self._wake.wait(every_s)
            self._wake.clear()
            if stopped.is_set():
                return
            try:
                self.look()
                if not self._read_only and time.monotonic() - swept_at > SWEEP_EVERY_S:
                    swept_at = time.monotonic()
                    self._sweep()
            except Exception:  # a bug must not end the looking
                log.exception("a look at %s failed", self._bucket)

    @contextlib.contextmanager
    def _writing(self, done: str) -> Iterator[None]:
        noun = self._schema.noun
        if self._read_only:
            raise StorageError(f"Nothing can be {done}: the {noun}s are read-only here.")
        try:
            with self._mirror.locked(done):
                yield
        except Denied as error:
            raise StorageError(
                f"The {noun} could not be {done}: the bucket refuses it ({error})."
            ) from error
        except Unreachable as error:
            raise Busy(
                f"The {noun} could not be {done}: the bucket of voices is out of reach ({error}). "
                "Try again.",
                retry_after_s=5,
            ) from error

    def _tidy(self, action: Callable[[], object]) -> None:
        """After the commit nothing may turn success into failure."""
        try:
            action()
        except (Unreachable, PhonateError, OSError) as error:
            log.warning("left for the next tidying up: %s", why(error))

    def _inventory(self) -> Inventory[T]:
        entries = self._mirror.entries()
        return Inventory(entries, self._damage(), {}, sum(e.n_bytes for e in entries.values()))

    def _refuse_future(self, id: str) -> None:
        problem = self._inventory().from_the_future(id)
        if problem is not None:
            raise Conflict(
                f"There is a {self._schema.noun} of this name, but {problem.reason}. "
                "Upgrade phonate or delete it first.",
                param="name",
            )

    def _forget_damage(self, id: str) -> None:
        self._bad = {folder: bad for folder, bad in self._bad.items() if bad[0].id != id}

    def _damage(self) -> tuple[Problem, ...]:
        return tuple(problem for problem, _ in list(self._bad.values()))


def _contended(noun: str) -> Busy:
    return Busy(f"Other servers change this {noun} all the time. Try again.")
