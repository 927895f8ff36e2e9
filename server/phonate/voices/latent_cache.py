"""Latents made from reference audio, kept so that a restart costs no encoding.

    cache/<voice id>/<key>.latents

The key is a hash of everything that decides the latents: the reference, the transcript, the model,
its quantisation and the library's ABI. A file that is short, long, changed or of another key is
ignored and made again, so nothing here needs to survive anything; it only must not lie.

    bytes 0..31   SHA-256 of the key and all that follows
    bytes 32..39  lengths of .spk and .rvq, uint32 little-endian
    then          .spk, .rvq (empty without in-context learning)
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
from collections.abc import Collection
from pathlib import Path

from phonate.engine.base import Reference
from phonate.errors import InvalidRequest
from phonate.voices.folders import (
    is_plain_folder,
    make_folder,
    read_file,
    remove_tree,
    replace_file,
    vanish,
)
from phonate.voices.latents import pack_rvq, pack_spk, unpack_rvq, unpack_spk
from phonate.voices.manifest import Damaged

MAX_BYTES = 64 << 20
"""About 4,000 voices at 16 KB (an x-vector of 2,048 and 10 s of codes are 11 KB)."""
MAX_FILE_BYTES = 1 << 20

_HEAD = struct.Struct("<32sII")


def latents_key(*parts: str | None) -> str:
    """One name for one combination; None and "" differ."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


class LatentCache:
    """Blocking. `put`, `drop` and `sweep` are called under the voice shelf's lock."""

    def __init__(self, root: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._root = root
        self._max_bytes = max_bytes

    def get(self, voice_id: str, key: str, text: str | None) -> Reference | None:
        """The latents under this key; `text` becomes the reference's."""
        path = self._path(voice_id, key)
        try:
            data = read_file(path, max_bytes=MAX_FILE_BYTES)
            reference = _unpack(data, key, text)
        except (OSError, Damaged, InvalidRequest, struct.error):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # what was used last is evicted last
        return reference

    def put(self, voice_id: str, key: str, reference: Reference) -> None:
        """OSError passes: the caller decides that a cache may fail."""
        make_folder(self._root)
        make_folder(self._root / voice_id)
        replace_file(self._path(voice_id, key), _pack(key, reference), sync=False)
        self._evict()

    def drop(self, voice_id: str) -> None:
        """Forget everything derived from a voice."""
        folder = self._root / voice_id
        if folder.is_symlink() or folder.exists():
            remove_tree(vanish(folder))

    def sweep(self, live: Collection[str]) -> None:
        """Remove what belongs to no voice: a crash or another process's removal left it."""
        for path in self._folders():
            if path.name not in live:
                remove_tree(path)

    def _evict(self) -> None:
        files = []
        for folder in self._folders():
            for path in folder.iterdir():
                status = path.lstat()
                files.append((status.st_mtime_ns, status.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self._max_bytes:
                break
            path.unlink()
            total -= size

    def _folders(self) -> list[Path]:
        return list(self._root.iterdir()) if is_plain_folder(self._root) else []

    def _path(self, voice_id: str, key: str) -> Path:
        return self._root / voice_id / f"{key}.latents"


def _pack(key: str, reference: Reference) -> bytes:
    spk = pack_spk(reference.embedding)
    rvq = b"" if reference.codes is None else pack_rvq(reference.codes)
    tail = struct.pack("<II", len(spk), len(rvq)) + spk + rvq
    return hashlib.sha256(key.encode() + tail).digest() + tail


def _unpack(data: bytes, key: str, text: str | None) -> Reference:
    digest, n_spk, n_rvq = _HEAD.unpack_from(data)
    if hashlib.sha256(key.encode() + data[32:]).digest() != digest:
        raise Damaged("the cached latents do not match their checksum")
    body = data[_HEAD.size :]
    if len(body) != n_spk + n_rvq:
        raise Damaged("the cached latents have the wrong length")
    codes = unpack_rvq(body[n_spk:]) if n_rvq else None
    return Reference(unpack_spk(body[:n_spk]), codes, text if codes is not None else None)
