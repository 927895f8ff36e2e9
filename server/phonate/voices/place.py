"""Where voices are kept: a folder, or everything below a prefix of an S3 bucket."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

SCHEME = "s3://"

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PART = re.compile(r"[A-Za-z0-9_.=-]+")


@dataclass(frozen=True, slots=True)
class Bucket:
    """`s3://name/prefix`; the prefix has no slash at its ends and may be empty."""

    name: str
    prefix: str = ""

    def __str__(self) -> str:
        return f"{SCHEME}{self.name}/{self.prefix}".rstrip("/")

    def below(self, part: str) -> Bucket:
        return Bucket(self.name, f"{self.prefix}/{part}".lstrip("/"))


Place: TypeAlias = Path | Bucket


def place_of(value: object) -> object:
    """What was written -> a Path or a Bucket; anything but text passes. Raises ValueError."""
    if not isinstance(value, str):
        return value
    if not value.lower().startswith(SCHEME):
        return Path(value)
    name, _, prefix = value[len(SCHEME) :].partition("/")
    parts = [part for part in prefix.split("/") if part]
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a bucket")
    if not all(_PART.fullmatch(part) and part.strip(".") for part in parts):
        raise ValueError("a prefix has letters, digits and - _ . = between its slashes")
    return Bucket(name, "/".join(parts))


def below(place: Place, part: str) -> Place:
    return place.below(part) if isinstance(place, Bucket) else place / part
