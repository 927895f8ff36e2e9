"""Real full and read-only disks: a tmpfs in a mount namespace of the child's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PRELUDE = """
import os, sys
from pathlib import Path
from voice_samples import recorded
from phonate.errors import SetupError, StorageError
from phonate.voices.library import VoiceLibrary
from phonate.voices.store import VoiceStore

root = Path(sys.argv[1]) / "voices"

def expect(error, call, words):
    try:
        call()
    except error as caught:
        assert words in caught.message, caught.message
        assert str(root) not in caught.message or error is SetupError
    else:
        raise AssertionError("it did not fail")

def folders():
    return sorted(p.name for p in root.iterdir() if p.is_dir())
"""

FULL = """
store = VoiceStore(root)
old = recorded("Anna", seed=1, seconds=2)         # 96 KB of 600
entry = store.add(old)
big = recorded("Anna", seed=2, seconds=15)        # 720 KB
for draft in (big, recorded("Bob", seconds=15)):
    expect(StorageError, lambda: store.add(draft), "no space left")
    for look in (store, VoiceStore(root)):
        assert look.files(look.find("Anna")) == dict(old.files)
        assert look.find("Bob") is None
        assert look.problems() == ()
    assert folders() == [entry.folder]
n = 0
try:
    while True:
        store.add(recorded(f"filler {n}", seconds=1))
        n += 1
except StorageError:
    pass
assert 5 < n < 12, n
assert len(VoiceStore(root).voices()) == n + 1
assert store.remove("filler 0"), "a full disk does not stop a removal"
assert len(folders()) == n
store.add(recorded("fits again", seconds=0.5))
"""

READ_ONLY = """
assert os.system(f"mount -o remount,rw {sys.argv[1]}") == 0
store = VoiceStore(root)
old = recorded("Anna", seconds=1)
entry = store.add(old)
assert os.system(f"mount -o remount,ro {sys.argv[1]}") == 0
expect(StorageError, lambda: store.add(recorded("Bob")), "read-only")
expect(StorageError, lambda: store.remove("Anna"), "read-only")
assert store.files(store.find("Anna")) == dict(old.files), "what was registered is still served"
expect(SetupError, lambda: VoiceStore(root), "read-only")
assert VoiceStore(root, read_only=True).files(entry) == dict(old.files)
VoiceLibrary(VoiceStore(root, read_only=True), model="m")
assert folders() == [entry.folder]
"""


def in_own_namespace(mount_options: str, script: str, folder: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("util-linux's unshare is not here: no private disk to fill")
    probe = [unshare, "-m", "mount", "-t", "tmpfs", "none", str(folder)]
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        pytest.skip("no permission for a private mount (needs root): no private disk to fill")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
    }
    command = f'mount -t tmpfs -o {mount_options} none "$1" && exec "$0" -c "$2" "$1"'
    done = subprocess.run(
        [unshare, "-m", "sh", "-c", command, sys.executable, str(folder), PRELUDE + script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_full_disk_refuses_the_new_and_keeps_the_old(tmp_path: Path) -> None:
    in_own_namespace("size=600k", FULL, tmp_path)


def test_a_read_only_disk_serves_and_refuses_to_change(tmp_path: Path) -> None:
    in_own_namespace("size=2m", READ_ONLY, tmp_path)
