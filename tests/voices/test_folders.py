from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from phonate.voices.folders import read_file, remove_tree, replace_file, write_file, write_folder
from phonate.voices.manifest import Damaged


def test_everything_is_on_disk_before_its_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Order is what a power cut tests; nothing here can cut the power."""
    calls: list[str] = []
    names: dict[int, str] = {}

    def spy(name: str) -> None:
        real: Callable[..., object] = getattr(os, name)

        def call(first: object, *rest: object, **kwargs: object) -> object:
            result = real(first, *rest, **kwargs)
            if name == "open":
                names[result] = Path(str(first)).name.split("-")[0]  # type: ignore[index]
            elif name == "rename":
                calls.append(f"rename to {Path(str(rest[0])).name}")
            else:
                calls.append(f"{name} {names[first]}")  # type: ignore[index]
            return result

        monkeypatch.setattr(os, name, call)

    for name in ("open", "write", "fsync", "rename"):
        spy(name)
    write_folder(tmp_path / "final", {"reference.wav": b"x", "voice.json": b"y"})
    assert calls == [
        "write reference.wav",
        "fsync reference.wav",
        "write voice.json",
        "fsync voice.json",
        "fsync .new",
        "rename to final",
        f"fsync {tmp_path.name.split('-')[0]}",
    ]


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:7]))
    write_file(tmp_path / "file", bytes(range(100)))
    assert (tmp_path / "file").read_bytes() == bytes(range(100))


def test_writing_never_follows_or_overwrites(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"precious")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("target", "link", "dangling"):
        with pytest.raises(FileExistsError):
            write_file(tmp_path / name, b"new")
    replace_file(tmp_path / "link", b"new")
    assert (tmp_path / "target").read_bytes() == b"precious"
    assert not (tmp_path / "link").is_symlink()


def test_removing_never_follows(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"precious")
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "deep" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "tree" / "file").write_bytes(b"x")
    remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
    assert (tmp_path / "outside" / "file").read_bytes() == b"precious"


def test_reading_takes_regular_files_of_a_bounded_size_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "fifo")
    assert read_file(tmp_path / "file", max_bytes=5) == b"12345"
    with pytest.raises(Damaged, match="5 bytes, at most 4"):
        read_file(tmp_path / "file", max_bytes=4)
    with pytest.raises(Damaged, match="symbolic link"):
        read_file(tmp_path / "link", max_bytes=5)
    for name in ("fifo", ""):
        with pytest.raises(Damaged, match="not a regular file"):
            read_file(tmp_path / name, max_bytes=5)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "nothing", max_bytes=5)


def test_a_failed_replacement_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_file(tmp_path / "file", b"old")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(tmp_path / "file", b"new")
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"
