"""Which voice a name means. One place for speakers, registered voices, aliases, OpenAI's names.

A name is looked up, case-insensitively, as: an alias of the operator (`--voice-alias`), a speaker
of the engine, a registered voice, and last one of OpenAI's voice names or `default`, which mean the
default voice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from phonate.engine.base import CloneMode, EngineInfo, Reference, Speaker
from phonate.errors import InvalidRequest, SetupError, VoiceNotFound
from phonate.voices.library import listing
from phonate.voices.voice import Voice, name_key

OPENAI_VOICES = (
    "alloy", "ash", "ballad", "coral", "echo", "fable", "onyx", "nova", "sage", "shimmer",
    "verse", "marin", "cedar",
)  # fmt: skip
"""The names that OpenAI's clients let out; Pipecat lets out no others."""

DEFAULT_NAMES = frozenset({*OPENAI_VOICES, "default"})


class Registered(Protocol):
    """The voices that people brought; see `library.VoiceLibrary`. Blocking."""

    def voices(self) -> tuple[Voice, ...]: ...

    def find(self, name_or_id: str) -> Voice | None: ...

    def reference_for(self, name_or_id: str, clone_mode: CloneMode = "auto") -> Reference: ...


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """What a name came to. `id` is how the voice is reported; neither speaker nor reference is
    set for an engine that needs none."""

    id: str = ""
    speaker: str | None = None
    registered: Voice | None = None


class VoiceCatalog:
    """See the module's text. `aliases`: NAME -> VOICE as configured. `choose` and `entries` may
    look at the disk: not for the event loop, unless `speaker` knows the name already."""

    def __init__(
        self, info: EngineInfo, aliases: Mapping[str, str], registered: Registered | None = None
    ) -> None:
        self._info = info
        self._registered = registered
        self._speakers = {name_key(speaker.id): speaker for speaker in info.speakers}
        self._aliases = {name_key(name): voice for name, voice in aliases.items()}
        for name, voice in aliases.items():
            if not self.knows(voice):
                raise SetupError(
                    f"--voice-alias {name}={voice}: there is no voice {voice!r}. "
                    f"Available: {', '.join(self.names()) or 'none'}."
                )

    def knows(self, name: str) -> bool:
        """Whether this is a voice by its own name, not by an alias."""
        return name_key(name) in self._speakers or self._find(name) is not None

    def names(self) -> list[str]:
        """What may be sent as `voice`, for error messages."""
        brought = self._registered.voices() if self._registered is not None else ()
        return [s.id for s in self._info.speakers] + [voice.name for voice in brought]

    def entries(self) -> list[dict[str, Any]]:
        """The public listing, engine's own voices first."""
        kind = "built_in" if self._info.name == "builtin" else "speaker"
        own = [
            {"id": s.id, "name": s.name, "kind": kind}
            | ({"language": s.language} if s.language else {})
            for s in self._info.speakers
        ]
        brought = self._registered.voices() if self._registered is not None else ()
        return own + [listing(voice) for voice in brought]

    def speaker(self, name: str | None) -> Speaker | None:
        """The engine's own voice of this name, without looking further; None if there is none. No
        name at all is its default voice, unless an alias says otherwise."""
        if name is None and "default" not in self._aliases:
            return self._default()
        return self._speakers.get(name_key(self._aliased(name)))

    def choose(self, name: str | None) -> Choice:
        """Raises VoiceNotFound, which names the voices there are."""
        wanted = self._aliased(name)
        speaker = self.speaker(name)
        if speaker is None and (found := self._find(wanted)) is not None:
            return Choice(found.name, registered=found)
        if speaker is None and name_key(wanted) in DEFAULT_NAMES:
            speaker = self._default()
            if speaker is None:
                return self._first_registered()
        if speaker is None:
            raise VoiceNotFound(name or "default", self.names())
        return Choice(speaker.id, speaker=speaker.id)

    def reference(self, choice: Choice, clone_mode: CloneMode) -> Reference | None:
        """What the engine needs for a registered voice. May make it, which takes seconds."""
        if choice.registered is None or self._registered is None:
            return None
        return self._registered.reference_for(choice.registered.id, clone_mode)

    def _aliased(self, name: str | None) -> str:
        wanted = name or "default"
        return self._aliases.get(name_key(wanted), wanted)

    def _find(self, name: str) -> Voice | None:
        if self._registered is None:
            return None
        try:
            return self._registered.find(name)
        except InvalidRequest:  # a name that could never be one
            return None

    def _default(self) -> Speaker | None:
        if self._info.default_speaker is not None:
            return self._speakers[name_key(self._info.default_speaker)]
        return self._info.speakers[0] if self._info.speakers else None

    def _first_registered(self) -> Choice:
        """A cloning model's default is the oldest voice that was registered; without any, the
        model speaks as it likes."""
        brought = self._registered.voices() if self._registered is not None else ()
        if not brought or not self._info.can_clone:
            return Choice()
        return Choice(brought[0].name, registered=brought[0])


def parse_aliases(options: Iterable[str]) -> dict[str, str]:
    """`--voice-alias NAME=VOICE`, split at the first `=`."""
    aliases = {}
    for option in options:
        name, separator, voice = option.partition("=")
        if not separator or not name.strip() or not voice.strip():
            raise SetupError(f"--voice-alias {option!r}: expected NAME=VOICE.")
        aliases[name.strip()] = voice.strip()
    return aliases
