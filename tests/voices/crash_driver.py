"""Kills a process that works on a store, again and again, and looks what is left.

Run by test_store_crash.py in a process of its own, because it forks. Two ways to die: SIGKILL at a
random moment, and before each single writing call of the operating system.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from voice_samples import recorded

from phonate.voices.folders import write_folder
from phonate.voices.store import VoiceStore

NAMES = ("Anna", "Bob", "Čeněk")
CALLS = ("open", "write", "fsync", "rename", "replace", "mkdir", "unlink", "rmdir")

Content = bytes | None


def wav(name: str, seed: int) -> bytes:
    return recorded(name, seed=seed, seconds=0.2).files["reference.wav"]


def served(root: Path) -> dict[str, Content]:
    """What a start after the crash serves; every promise that holds at any time is checked."""
    store = VoiceStore(root)
    assert store.problems() == (), store.problems()
    left = sorted(path.name for path in root.iterdir() if path.is_dir() and path.name != "cache")
    folders = sorted(entry.folder for entry in store.entries().values())
    assert left == folders, f"debris: {set(left) ^ set(folders)}"
    result: dict[str, Content] = dict.fromkeys(NAMES)
    for entry in store.entries().values():
        files = store.files(entry)
        assert files is not None
        result[entry.value.name] = files["reference.wav"]
    return result


def work_for_ever(root: Path, journal: int, seed: int) -> None:
    rng = random.Random(seed)
    store = VoiceStore(root)
    while True:
        name, number = rng.choice(NAMES), rng.randrange(1000)
        remove = rng.random() < 0.3
        number = -1 if remove else number
        os.write(journal, f"begin {name} {number}\n".encode())
        if remove:
            store.remove(name)
        else:
            store.add(recorded(name, seed=number, seconds=0.2))
        os.write(journal, f"done {name} {number}\n".encode())


def kill_at_random_moments(root: Path, times: int) -> None:
    state = served(root)
    rng = random.Random(4711)
    unfinished = 0
    for round in range(times):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            work_for_ever(root, writing, seed=round)
        os.close(writing)
        log = os.read(reading, 1)
        time.sleep(rng.uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while piece := os.read(reading, 65536):
            log += piece
        os.close(reading)
        allowed: dict[str, set[Content]] = {name: {content} for name, content in state.items()}
        for line in log.decode().splitlines():
            verb, name, number = line.split(" ")
            content = None if number == "-1" else wav(name, int(number))
            # begun: old or new; done: new and nothing else
            allowed[name] = {content} if verb == "done" else allowed[name] | {content}
        unfinished += sum(len(contents) > 1 for contents in allowed.values())
        state = served(root)
        for name, content in state.items():
            assert content in allowed[name], f"round {round}: {name} is neither old nor new"
    print(f"{times} kills, {unfinished} in the middle of something")
    assert unfinished >= times // 2, "the kills hit nothing"


def die_at(n: int) -> None:
    """From now on the process does not live to make its n-th writing call."""
    count = 0

    def wrap(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            nonlocal count
            count += 1
            if count - 1 == n:
                os._exit(9)
            return real(*args, **kwargs)

        return call

    for name in CALLS:
        setattr(os, name, wrap(getattr(os, name)))


def die_at_every_call(root: Path) -> None:
    old, new = wav("Anna", 1), wav("Anna", 2)
    operations: dict[str, tuple[Content, Content]] = {
        "register": (None, new),
        "replace": (old, new),
        "remove": (old, None),
    }
    for operation, (before, after) in operations.items():
        points = 0
        while die_once(root, operation, before, {before, after}, points):
            points += 1
        print(f"{operation}: {points} points of death")
        assert points >= 8  # pathlib goes past some of our wrappers in Python 3.10


def die_removing_two_versions(root: Path) -> None:
    """A crash can leave the loser of a replacement; a removal must not bring it back."""
    store = VoiceStore(root)
    points = 0
    while True:
        store.remove("Anna")
        old = store.add(recorded("Anna", seed=1, seconds=0.2))
        kept = {path.name: path.read_bytes() for path in (root / old.folder).iterdir()}
        store.add(recorded("Anna", seed=2, seconds=0.2))
        write_folder(root / old.folder, kept)
        child = os.fork()
        if child == 0:
            die_at(points)
            store.remove("Anna")
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert served(root)["Anna"] in (wav("Anna", 2), None), f"call {points}: the loser is back"
        if code == 0:
            break
        points += 1
    print(f"remove two versions: {points} points of death")
    assert points >= 12


def die_once(root: Path, operation: str, before: Content, allowed: set[Content], n: int) -> bool:
    """Whether the process died; False when it was done before its n-th call."""
    store = VoiceStore(root)
    store.remove("Anna")
    if before is not None:
        store.add(recorded("Anna", seed=1, seconds=0.2))
    child = os.fork()
    if child == 0:
        mine = VoiceStore(root)
        die_at(n)
        if operation == "remove":
            mine.remove("Anna")
        else:
            mine.add(recorded("Anna", seed=2, seconds=0.2))
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    assert served(root)["Anna"] in allowed, f"{operation}, call {n}: neither old nor new"
    return code == 9


if __name__ == "__main__":
    what, folder = sys.argv[1], Path(sys.argv[2])
    if what == "random":
        kill_at_random_moments(folder, times=50)
    else:
        die_at_every_call(folder)
        die_removing_two_versions(folder)
