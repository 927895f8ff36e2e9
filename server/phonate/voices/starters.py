"""Voices that come with phonate: read-only folders in the store's own format.

voices/<any name>/{voice.json, reference.wav, LICENSE}
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from phonate.errors import SetupError
from phonate.voices.folders import is_plain_folder
from phonate.voices.inventory import Reader, why
from phonate.voices.manifest import Damaged, FromTheFuture
from phonate.voices.shelf import MAX_FILE_BYTES
from phonate.voices.store import VOICE_SCHEMA, StoredVoice
from phonate.voices.voice import Voice

log = logging.getLogger(__name__)


def bundled_folder() -> Path:
    """Inside the installed package, or beside it in a checkout. Raises SetupError."""
    package = Path(__file__).parents[1]
    for folder in (package / "starter_voices", package.parents[1] / "voices"):
        if is_plain_folder(folder):
            return folder
    raise SetupError("--starter-voices: this installation came without them.")


class StarterVoices:
    """Read once, at the start. A damaged one is left out with a warning."""

    def __init__(self, root: Path) -> None:
        """Raises SetupError when there is no such folder."""
        self._reader: Reader[Voice] = Reader(root, VOICE_SCHEMA, max_file_bytes=MAX_FILE_BYTES)
        self._entries: dict[str, StoredVoice] = {}
        try:
            folders = sorted(name for name in os.listdir(root) if is_plain_folder(root / name))
        except OSError as error:
            message = f"The starter voices in {root} cannot be read: {why(error)}"
            raise SetupError(message) from error
        for folder in folders:
            if (root / folder / VOICE_SCHEMA.manifest_name).exists():
                self._load(folder)

    def _load(self, folder: str) -> None:
        try:
            entry = self._reader.load_named(folder)
            self._reader.contents(entry)
        except (Damaged, FromTheFuture, OSError) as error:
            log.warning("starter voice %s is not served: %s", folder, why(error))
        else:
            # Not what its folder says, which is a shelf's: nobody registered it on this server.
            value = replace(entry.value, kind="starter")
            self._entries[entry.id] = replace(entry, value=value)

    def entries(self) -> Mapping[str, StoredVoice]:
        return self._entries

    def files(self, entry: StoredVoice) -> dict[str, bytes]:
        """Checked bytes. Raises Damaged or OSError when somebody changed them since the start."""
        return self._reader.contents(entry)
