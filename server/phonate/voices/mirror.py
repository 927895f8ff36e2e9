"""The local copy of a bucket's things: a shelf like any other, except that its folders come from
the bucket, under the names that they have everywhere."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import platformdirs

from phonate.voices.folders import write_folder
from phonate.voices.inventory import T
from phonate.voices.place import Bucket
from phonate.voices.shelf import Shelf

MARK = ".complete"


def mirror_folder(bucket: Bucket, endpoint: str) -> Path:
    """One for each prefix; two buckets of one name at two endpoints are two."""
    digest = hashlib.sha256(f"{endpoint} {bucket}".encode()).hexdigest()[:16]
    return Path(platformdirs.user_cache_dir("phonate")) / "voices" / f"{bucket.name}-{digest}"


class Mirror(Shelf[T]):
    """Blocking; any thread, and several processes."""

    def folders(self) -> Mapping[str, tuple[str, ...]]:
        """id -> its folders, newest first."""
        return self._refreshed().folders

    def take_in(self, folder: str, files: Mapping[str, bytes]) -> None:
        """Keep checked files, the manifest last. What was set aside here under this id is of no
        use any more."""
        with self._lock.hold("saved"):
            self._sweep_debris()
            if not (self.root / folder).exists():
                write_folder(self.root / folder, files)
            self._tidy(partial(self._quarantine.remove, folder.partition(".")[0]))
            self._announce()

    def drop(self, folders: Iterable[str]) -> None:
        with self._lock.hold("removed completely"):
            self._remove_folders(iter(list(folders)))
            self._announce()

    @property
    def was_complete(self) -> bool:
        """Whether this has ever been all that the bucket had."""
        return (self.root / MARK).exists()

    def note_complete(self) -> None:
        (self.root / MARK).touch(mode=0o600)
