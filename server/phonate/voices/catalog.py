"""Which voice a name means. One place for the engine's speakers, aliases and OpenAI's names.

A name is looked up, case-insensitively, as: an alias of the operator (`--voice-alias`), a speaker
of the engine, and last one of OpenAI's voice names or `default`, which mean the default voice.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from phonate.engine.base import EngineInfo, Speaker
from phonate.errors import SetupError, VoiceNotFound

OPENAI_VOICES = (
    "alloy", "ash", "ballad", "coral", "echo", "fable", "onyx", "nova", "sage", "shimmer",
    "verse", "marin", "cedar",
)  # fmt: skip
"""The names that OpenAI's clients let out; Pipecat lets out no others."""


def voice_key(name: str) -> str:
    """What all spellings of one voice name share: NFC of the casefold of the trimmed name."""
    return unicodedata.normalize("NFC", name.strip().casefold())


@dataclass(frozen=True, slots=True)
class VoiceEntry:
    """One line of the voice listing."""

    id: str
    name: str
    kind: str
    """built_in, speaker, registered or designed."""
    language: str | None = None


class VoiceCatalog:
    """See the module's text. `aliases`: NAME -> VOICE as configured."""

    def __init__(self, info: EngineInfo, aliases: Mapping[str, str]) -> None:
        self._info = info
        self._speakers = {voice_key(speaker.id): speaker for speaker in info.speakers}
        self._aliases = {voice_key(name): voice for name, voice in aliases.items()}
        for name, voice in aliases.items():
            if voice_key(voice) not in self._speakers:
                raise SetupError(
                    f"--voice-alias {name}={voice}: there is no voice {voice!r}. "
                    f"Available: {', '.join(self.names()) or 'none'}."
                )

    def names(self) -> list[str]:
        return [entry.id for entry in self.entries()]

    def entries(self) -> list[VoiceEntry]:
        kind = "built_in" if self._info.name == "builtin" else "speaker"
        return [VoiceEntry(s.id, s.name, kind, s.language) for s in self._info.speakers]

    def resolve(self, name: str | None) -> Speaker | None:
        """None for an engine that has no speakers and needs none. Raises VoiceNotFound."""
        key = voice_key(name or "default")
        key = voice_key(self._aliases.get(key, key))
        if key in self._speakers:
            return self._speakers[key]
        if key in (*OPENAI_VOICES, "default"):
            return self._default()
        raise VoiceNotFound(name or "default", self.names())

    def _default(self) -> Speaker | None:
        if self._info.default_speaker is not None:
            return self._speakers[voice_key(self._info.default_speaker)]
        return self._info.speakers[0] if self._info.speakers else None


def parse_aliases(options: Iterable[str]) -> dict[str, str]:
    """`--voice-alias NAME=VOICE`, split at the first `=`."""
    aliases = {}
    for option in options:
        name, separator, voice = option.partition("=")
        if not separator or not name.strip() or not voice.strip():
            raise SetupError(f"--voice-alias {option!r}: expected NAME=VOICE.")
        aliases[name.strip()] = voice.strip()
    return aliases
