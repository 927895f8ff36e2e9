"""Onset-silence profiles: codes that make one pair of model files hesitate before it speaks.

The codes were found by listening to exactly these files; on any other pair the same numbers mean
other sounds. So a profile comes with the SHA-256 of both files, and is used only when both match.
It concerns x-vector cloning alone: with in-context learning the reference leads straight in.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from phonate.engine.models.model_files import ModelFiles
from phonate.errors import SetupError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OnsetProfile:
    """`ids` of codebook 0 are not chosen in the first `n_frames` frames."""

    name: str
    talker_sha256: str
    codec_sha256: str
    ids: tuple[int, ...]
    n_frames: int


PROFILES = {
    profile.name: profile
    for profile in (
        OnsetProfile(
            name="qwen3_tts_12hz_0_6b_base_q8_v1",
            talker_sha256="d54dbaf10591421fa764ed630d764efa717ae40cd959bd48c66d4eb1af226426",
            codec_sha256="1883beeed99348fc35e23dd225e9082f93f6f8c109330a33d935baa8acdbfd94",
            ids=(212, 215, 462, 619, 1181, 1524, 1657, 1995),
            n_frames=3,
        ),
    )
}


def profile_for(
    name: str, files: ModelFiles, *, cache_file: Path | None = None
) -> OnsetProfile | None:
    """The profile, or None with a warning when these are not the files it was made for.

    Raises SetupError for an unknown name. Hashing reads both files once; what was found is kept in
    `cache_file` (by default in the user's cache directory) until a file changes.
    """
    if name not in PROFILES:
        raise SetupError(
            f"--onset-silence-profile {name}: choose one of {', '.join(PROFILES)}.",
            param="onset_silence_profile",
        )
    profile = PROFILES[name]
    for path, expected in (
        (files.talker, profile.talker_sha256),
        (files.codec, profile.codec_sha256),
    ):
        found = cached_sha256(path, cache_file)
        if found != expected:
            log.warning(
                "onset-silence profile %s is not applied: %s has SHA-256 %s, it was made for %s",
                name,
                path,
                found,
                expected,
            )
            return None
    return profile


def cached_sha256(path: Path, cache_file: Path | None = None) -> str:
    """SHA-256 of a file in hex, remembered by path, size and time of change."""
    cache_file = cache_file or user_cache_path("phonate") / "sha256.json"
    real = path.resolve()
    try:
        stat = real.stat()
        stamp = [stat.st_size, stat.st_mtime_ns]
        known = _load(cache_file)
        entry = known.get(str(real))
        if isinstance(entry, dict) and entry.get("stamp") == stamp:
            return str(entry.get("sha256"))
        digest = hashlib.sha256()
        with real.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError as error:
        raise SetupError(f"Cannot read {path}: {error.strerror}.") from error
    known[str(real)] = {"stamp": stamp, "sha256": digest.hexdigest()}
    _save(cache_file, known)
    return digest.hexdigest()


def _load(cache_file: Path) -> dict[str, object]:
    try:
        value = json.loads(cache_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _save(cache_file: Path, known: dict[str, object]) -> None:
    """A cache that cannot be written costs time, not correctness."""
    temporary = cache_file.with_name(f".{cache_file.name}.{os.getpid()}")
    try:
        cache_file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(known, indent=1), encoding="utf-8")
        os.replace(temporary, cache_file)
    except OSError as error:
        log.debug("cannot keep %s: %s", cache_file, error)
