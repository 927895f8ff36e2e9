"""Which voice speaks a request, in which language: routing, then the catalogue, then the disk."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Protocol

from phonate.api.voice_desk import VoiceDesk
from phonate.engine.base import CloneMode, Reference
from phonate.speech.request import SpeechRequest
from phonate.speech.routing import LanguageRouting
from phonate.voices.catalog import VoiceCatalog

ONE_OFF = "one-off"


class Chooser(Protocol):
    """What choosing a voice needs; the app's `State` has it."""

    @property
    def voices(self) -> VoiceCatalog: ...
    @property
    def routing(self) -> LanguageRouting: ...
    @property
    def desk(self) -> VoiceDesk: ...


@dataclass(frozen=True, slots=True, eq=False)
class Voice:
    """`id` is reported; speaker or reference is for the engine; `language` None is its choice."""

    id: str
    speaker: str | None
    reference: Reference | None
    language: str | None


async def voice_for(
    state: Chooser,
    text: str,
    name: str | None,
    language: str | None,
    clone_mode: CloneMode,
    reference: Reference | None = None,
) -> Voice:
    """`reference`: a one-off voice, which no route leads away from. Raises VoiceNotFound,
    UnsupportedLanguage, UnsupportedOperation."""
    routing = state.routing
    if reference is not None:
        routed = routing.route(text, None, language)
        return Voice(ONE_OFF, None, reference, routed.language)
    speaker = state.voices.speaker(name)
    if speaker is not None:
        base = speaker.id
    else:
        base = (await state.desk.do(state.voices.choose, name)).id
    # A route may be filed under the name that clients use, or under the voice behind it.
    filed = name if name is not None and routing.routes.has(name) else base
    routed = routing.route(text, filed, language)
    target = name if routed.voice == filed else routed.voice
    speaker = state.voices.speaker(target)
    if speaker is not None:
        return Voice(speaker.id, speaker.id, None, routed.language)
    choice = await state.desk.do(state.voices.choose, target)
    made = await state.desk.do(state.voices.reference, choice, clone_mode)
    return Voice(choice.id, choice.speaker, made, routed.language)


async def fragment_voice(state: Chooser, request: SpeechRequest, text: str) -> SpeechRequest:
    """The request for one fragment of a stream: its own language may call for another voice."""
    if request.asked_language is not None or request.voice == ONE_OFF:
        return dataclasses.replace(request, text=text)
    voice = await voice_for(state, text, request.asked_voice, None, request.clone_mode)
    return dataclasses.replace(
        request,
        text=text,
        voice=voice.id,
        speaker=voice.speaker,
        reference=voice.reference,
        language=voice.language,
    )
