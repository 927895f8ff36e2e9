"""Folders that are whole or not there: the file-system half of the store.

Everything here works on plain paths, follows no symlink, makes folders 0700 and files 0600, and
lets OSError through; the shelf knows what it means.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from phonate.voices.manifest import Damaged

FOLDER_MODE = 0o700
FILE_MODE = 0o600

NEW_PREFIX = ".new-"
"""A folder being written. Whoever finds one while holding the lock may remove it."""
GONE_PREFIX = ".gone-"
"""A folder being removed. Likewise."""

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)  # a FIFO in our place must not hang us
_BINARY = getattr(os, "O_BINARY", 0)
_IS_POSIX = os.name == "posix"


def make_folder(path: Path) -> None:
    """0700 whatever the umask; fine if it is there."""
    path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)


def write_folder(final: Path, files: Mapping[str, bytes]) -> None:
    """Make `final` with these files, the last one last, all at once: before the rename nothing is
    visible, after the return it survives a power cut. On any error nothing stays behind."""
    work = final.parent / f"{NEW_PREFIX}{secrets.token_hex(8)}"
    renamed = False
    try:
        work.mkdir(mode=FOLDER_MODE)
        for name, data in files.items():
            write_file(work / name, data)
        sync_folder(work)
        os.rename(work, final)
        renamed = True
        sync_folder(final.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            if renamed:
                os.rename(final, work)
            remove_tree(work)
        raise


def write_file(path: Path, data: bytes, *, sync: bool = True) -> None:
    """A new file, 0600. FileExistsError if anything is there, a symlink included."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _CLOEXEC | _BINARY
    fd = os.open(path, flags, FILE_MODE)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, data: bytes, *, sync: bool = True) -> None:
    """The file changes at one instant; readers see the old bytes or the new."""
    work = path.parent / f"{NEW_PREFIX}{secrets.token_hex(8)}"
    try:
        write_file(work, data, sync=sync)
        os.replace(work, path)
    except BaseException:
        with contextlib.suppress(OSError):
            work.unlink()
        raise


def read_file(path: Path, *, max_bytes: int) -> bytes:
    """A regular file's bytes. Raises Damaged for anything that is not one, or is longer."""
    try:
        fd = os.open(path, os.O_RDONLY | _NOFOLLOW | _CLOEXEC | _NONBLOCK | _BINARY)
    except FileNotFoundError:
        raise
    except OSError as error:
        if path.is_symlink():
            raise Damaged(f"{path.name} is a symbolic link") from error
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise Damaged(f"{path.name} is not a regular file")
        if status.st_size > max_bytes:
            raise Damaged(f"{path.name} has {status.st_size} bytes, at most {max_bytes} expected")
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(max_bytes + 1)
    finally:
        os.close(fd)


def vanish(folder: Path) -> Path:
    """Take a folder (or a file) out of sight at one instant, durably. Returns where it waits for
    `remove_tree`."""
    gone = folder.parent / f"{GONE_PREFIX}{secrets.token_hex(8)}"
    os.rename(folder, gone)
    sync_folder(folder.parent)
    return gone


def remove_tree(path: Path) -> None:
    """Remove a folder and what is in it, or a file; a symlink itself, never what it points to."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    with os.scandir(path) as entries:
        children = [Path(entry.path) for entry in entries]
    for child in children:
        remove_tree(child)
    path.rmdir()


def is_plain_folder(path: Path) -> bool:
    """A directory, and not a link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable. Windows has no such call and does without."""
    if not _IS_POSIX:
        return
    fd = os.open(path, os.O_RDONLY | _CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
