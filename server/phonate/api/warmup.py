"""Before the socket says ready: speak into the void, and listen to the recordings of routed voices.

The first request would otherwise pay for what is slow only once: pages of a model that are not in
memory yet, a voice's latents that are not made yet.
"""

from __future__ import annotations

import logging
import time

from phonate.api.schemas import SpeechBody
from phonate.api.state import State
from phonate.errors import PhonateError, SetupError
from phonate.settings import Settings
from phonate.speech.fields import read
from phonate.voices.catalog import VoiceCatalog

log = logging.getLogger("phonate.serve")

_FLAG = "--startup-warmup-voice"


def check_warm_up(settings: Settings, voices: VoiceCatalog) -> None:
    """Raises SetupError for a voice that there is not, by its name."""
    name = settings.startup_warmup_voice
    if name is not None and not voices.knows(name):
        raise SetupError(
            f"{_FLAG} {name!r}: there is no such voice. `phonate voices list` shows the registered "
            "ones; the engine's own are in GET /v1/audio/voices."
        )


async def warm_up(state: State) -> None:
    """Raises SetupError for what does not work: better now than at the first request."""
    began = time.monotonic()
    settings = state.settings
    name = settings.startup_warmup_voice
    if name is not None:
        try:
            await _speak(state, name)
        except PhonateError as error:
            raise SetupError(f"{_FLAG} {name!r}: {error.message}") from error
    routed = sorted(state.routing.routes.voices()) if settings.startup_warmup_routes else []
    for voice in routed:
        try:
            await _prepare(state, voice)
        except PhonateError as error:
            raise SetupError(f"--voice-language-route to {voice!r}: {error.message}") from error
    if name is not None or routed:
        log.info("warmed up in %.2f s", time.monotonic() - began)


async def _speak(state: State, voice: str) -> None:
    settings = state.settings
    body = read(
        SpeechBody,
        {
            "input": settings.startup_warmup_text,
            "voice": voice,
            "max_new_tokens": settings.startup_warmup_tokens,
        },
    )
    request = await body.to_request(state, "warm-up", "", whole=False)
    async for _ in state.service.speak(request).blocks():
        pass


async def _prepare(state: State, voice: str) -> None:
    """A speaker of the engine needs nothing; a registered voice is listened to, unless its latents
    are kept already."""
    choice = await state.desk.do(state.voices.choose, voice)
    if choice.registered is not None:
        await state.desk.do(state.voices.reference, choice, "auto")
