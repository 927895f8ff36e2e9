"""Which voice speaks a request, in which language: routing, then the catalogue, then the disk."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Protocol

from phonate.api.voice_desk import VoiceDesk
from phonate.engine.base import CloneMode, Reference
from phonate.errors import PhonateError
from phonate.logs import keep_private
from phonate.speech.language import patience_ms
from phonate.speech.request import SpeechRequest
from phonate.speech.routing import LanguageRouting, Routed
from phonate.speech.session_events import Route
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
    filed = await filed_under(state, name)
    routed = routing.route(text, filed, language)
    return await spoken_by(state, name, filed, routed, clone_mode)


async def filed_under(state: Chooser, name: str | None) -> str:
    """The name that routes of the voice `name` are under: the one that clients use, or that of
    the voice behind it. Raises VoiceNotFound."""
    if name is not None and state.routing.routes.has(name):
        return name
    speaker = state.voices.speaker(name)
    if speaker is not None:
        return speaker.id
    return (await state.desk.do(state.voices.choose, name)).id


async def spoken_by(
    state: Chooser, name: str | None, filed: str, routed: Routed, clone_mode: CloneMode
) -> Voice:
    """The voice at the end of a route, ready to speak."""
    speaker = state.voices.speaker(routed.voice)
    if speaker is not None:  # most requests: not a look at the disk
        return Voice(speaker.id, speaker.id, None, routed.language)
    target = name if routed.voice == filed else routed.voice
    choice = await state.desk.do(state.voices.choose, target)
    made = None
    if choice.registered is not None:
        made = await state.desk.do(state.voices.reference, choice, clone_mode)
    return Voice(choice.id, choice.speaker, made, routed.language)


# Fragments of a stream ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class FragmentPlan:
    """What a session speaks a fragment with. `routed`: where its language leads; None where
    nothing is to be decided. `refused`: why it cannot be spoken."""

    request: SpeechRequest
    filed: str = ""
    routed: Routed | None = None
    refused: PhonateError | None = None


class FragmentRouter:
    """Decides each fragment's language and voice by its text, for one session and config.

    A text of uncertain language is taken for the last certain one of the session. For a voice
    with routes the first fragment may wait a little for more words (LANGUAGE.md)."""

    def __init__(self, routing: LanguageRouting, request: SpeechRequest, filed: str) -> None:
        self._routing = routing
        self._request = request
        self._filed = filed
        self._last: str | None = None

    def __call__(self, text: str) -> Route:
        try:
            routed = self._routing.route(text, self._filed, None, self._last)
        except PhonateError as refused:
            return Route(FragmentPlan(self._request, self._filed, refused=refused))
        decision = routed.decision
        if decision.accepted:
            self._last = decision.language
        wait_s = 0.0
        if self._routing.routes.has(self._filed) and self._last is None:
            wait_s = patience_ms(decision, self._routing.languages) / 1000
        return Route(
            FragmentPlan(self._request, self._filed, routed),
            language=routed.language,
            voice=routed.voice,
            wait_s=wait_s,
        )


async def fragment_request(state: Chooser, plan: FragmentPlan, text: str) -> SpeechRequest:
    """The request for one fragment. Raises what `plan` was refused with, or VoiceNotFound when a
    registered voice has gone meanwhile."""
    keep_private(text)
    if plan.refused is not None:
        raise plan.refused
    request = dataclasses.replace(plan.request, text=text)
    if plan.routed is None:
        return request
    voice = await spoken_by(state, request.asked_voice, plan.filed, plan.routed, request.clone_mode)
    return dataclasses.replace(
        request,
        voice=voice.id,
        speaker=voice.speaker,
        reference=voice.reference,
        language=voice.language,
    )
