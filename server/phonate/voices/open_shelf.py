"""The shelf for a place: a folder's, or a bucket's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from phonate.voices.bucket_shelf import BucketShelf
from phonate.voices.inventory import Schema, T
from phonate.voices.mirror import mirror_folder
from phonate.voices.objects import endpoint
from phonate.voices.place import Bucket, Place
from phonate.voices.shelf import Shelf

AnyShelf: TypeAlias = Shelf[T] | BucketShelf[T]


def open_shelf(
    place: Place,
    schema: Schema[T],
    *,
    read_only: bool = False,
    on_change: Callable[[str], None] = lambda id: None,
) -> AnyShelf[T]:
    """Raises SetupError. `on_change` hears of ids that another server changed."""
    if isinstance(place, Bucket):
        return BucketShelf(place, schema, read_only=read_only, on_change=on_change)
    return Shelf(place, schema, read_only=read_only)


def local_root(place: Place) -> Path:
    """The folder on this machine that things are read from."""
    return mirror_folder(place, endpoint()) if isinstance(place, Bucket) else place


def is_reachable(shelf: AnyShelf[T]) -> bool:
    return shelf.is_reachable if isinstance(shelf, BucketShelf) else True


def look(shelf: AnyShelf[T]) -> None:
    """See now what other machines have changed, if that is possible; a folder's is seen anyway."""
    if isinstance(shelf, BucketShelf):
        shelf.look()


def following(shelf: AnyShelf[T]) -> contextlib.AbstractContextManager[None]:
    """Meanwhile the changes of other machines are noticed; a folder's are in any case."""
    return shelf.following() if isinstance(shelf, BucketShelf) else contextlib.nullcontext()
