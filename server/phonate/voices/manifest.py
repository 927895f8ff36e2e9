"""The paper that lies in every stored folder: what it holds, with a checksum of each file and of
the paper itself.

    {
      "format": "phonate-voice", "version": 1,
      "value": {...},                                  what the owner of the format says
      "files": {"reference.wav": {"bytes": 240044, "sha256": "..."}},
      "checksum": "..."                                of the JSON above, keys sorted, compact
    }

It is written last, so a folder with a manifest is a folder that was finished.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_MANIFEST_BYTES = 64 * 1024
"""A transcript, a description and a name at their limits, all escaped, stay below this."""

_FILE_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}\.[a-z0-9]{1,8}")
_UPLOAD = re.compile(r"[0-9a-f]{32}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Damaged(Exception):
    """What lies in the folder is not what was written. The text is the reason."""


class FromTheFuture(Exception):
    """A newer phonate wrote this folder; it may be perfectly fine. The text is the reason."""


@dataclass(frozen=True, slots=True)
class FileSeal:
    """What a file's bytes must be."""

    n_bytes: int
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> FileSeal:
        return cls(len(data), hashlib.sha256(data).hexdigest())


@dataclass(frozen=True, slots=True)
class Manifest:
    format: str
    version: int
    value: dict[str, Any]
    files: Mapping[str, FileSeal]
    upload: str | None = None
    """In a bucket: where the files are (ledger.py)."""

    def to_bytes(self) -> bytes:
        body: dict[str, Any] = {
            "format": self.format,
            "version": self.version,
            "value": self.value,
            "files": {n: {"bytes": s.n_bytes, "sha256": s.sha256} for n, s in self.files.items()},
        }
        if self.upload is not None:
            body["upload"] = self.upload
        body["checksum"] = _checksum(body)
        return json.dumps(body, ensure_ascii=False, indent=2, sort_keys=True).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, *, format: str, version: int) -> Manifest:
        """Raises Damaged, or FromTheFuture when `version` is the newest one known here."""
        try:
            body = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise Damaged("its manifest is not JSON") from error
        if not isinstance(body, dict) or body.get("format") != format:
            raise Damaged(f"its manifest is not of format {format!r}")
        found = body.get("version")
        if type(found) is not int or found < 1:
            raise Damaged("its manifest has no version")
        if found > version:
            raise FromTheFuture(
                f"it was written by a newer phonate (format version {found}, known here: {version})"
            )
        checksum = body.pop("checksum", None)
        if checksum != _checksum(body):
            raise Damaged("its manifest does not match its own checksum")
        value = body.get("value")
        if not isinstance(value, dict):
            raise Damaged("its manifest has no value")
        upload = body.get("upload")
        if upload is not None and not _UPLOAD.fullmatch(str(upload)):
            raise Damaged("its manifest names an impossible upload")
        return cls(format, found, value, _read_seals(body.get("files")), upload)


def _read_seals(raw: object) -> dict[str, FileSeal]:
    if not isinstance(raw, dict):
        raise Damaged("its manifest lists no files")
    seals = {}
    for name, seal in raw.items():
        if not _FILE_NAME.fullmatch(name) or not isinstance(seal, dict):
            raise Damaged("its manifest names an impossible file")
        n_bytes, sha256 = seal.get("bytes"), seal.get("sha256")
        if type(n_bytes) is not int or n_bytes < 0 or not _SHA256.fullmatch(str(sha256)):
            raise Damaged(f"its manifest has no size or hash for {name}")
        seals[name] = FileSeal(n_bytes, str(sha256))
    return seals


def _checksum(body: dict[str, Any]) -> str:
    canonical = json.dumps(body, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()
