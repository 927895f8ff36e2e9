"""A process that is killed while it works on a bucket, and one that works beside us."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from s3_world import World, eventually
from voice_samples import recorded

from phonate.voices.bucket_shelf import BucketShelf
from phonate.voices.store import VoiceStore

CHILD = """
import os, sys
from voice_samples import recorded
from phonate.voices import mirror
from phonate.voices.objects import Objects
from phonate.voices.place import place_of
from phonate.voices.store import VoiceStore

bucket, cache, operation, deadly = sys.argv[1:]
mirror.platformdirs.user_cache_dir = lambda name: cache
store = VoiceStore(place_of(bucket))
calls = 0

def wrap(real):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == int(deadly):
            os._exit(9)
        return real(*args, **kwargs)
    return call

for name in ("put", "create", "delete"):
    setattr(Objects, name, wrap(getattr(Objects, name)))
if operation == "remove":
    store.remove("Anna")
else:
    store.add(recorded("Anna", seed=2))
"""


def child(world: World, operation: str, deadly: int) -> int:
    """Its exit code; 9 when it died before its n-th writing request."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
    }
    cache = str(world.folder / "child")
    return subprocess.run(
        [sys.executable, "-c", CHILD, str(world.bucket), cache, operation, str(deadly)],
        env=environment,
        timeout=60,
        check=False,
    ).returncode


@pytest.mark.parametrize(
    ("operation", "deadly", "counts"),
    [
        ("replace", 1, "old"),  # before the upload
        ("replace", 2, "old"),  # between upload and commit
        ("replace", 3, "new"),  # between commit and tidying up
        ("remove", 1, "old"),
        ("remove", 2, "none"),
        ("remove", 3, "none"),  # its file is gone, its old version not yet
    ],
)
def test_a_killed_writer_leaves_old_or_new_and_nothing_for_ever(
    world: World, operation: str, deadly: int, counts: str
) -> None:
    old, new = recorded("Anna", seed=1), recorded("Anna", seed=2)
    store = VoiceStore(world.bucket)
    store.add(old)
    assert child(world, operation, deadly) == 9
    assert isinstance(store._shelf, BucketShelf)
    for _ in range(2):
        world.be("machine-b")
        for look in (store, VoiceStore(world.bucket)):
            assert isinstance(look._shelf, BucketShelf)
            look._shelf._look()
            served = [look.files(entry) for entry in look.entries().values()]
            wanted = {"old": [dict(old.files)], "new": [dict(new.files)], "none": []}
            assert served == wanted[counts]
            assert look.problems() == ()
        store._shelf._ledger.sweep(grace_s=-5)
        assert len(world.keys()) == 2 * len(wanted[counts]), "nothing else is left"


def test_what_another_process_registers_is_seen_within_seconds(world: World) -> None:
    store = VoiceStore(world.bucket)
    with store.following():
        assert child(world, "add", 0) == 0
        took = eventually(lambda: [v.name for v in store.voices()] == ["Anna"])
    assert took < 4
