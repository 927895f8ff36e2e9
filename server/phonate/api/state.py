"""What the routes need, in one typed object. `app.create_app` fills it."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Protocol

from fastapi import Depends
from starlette.requests import HTTPConnection

from phonate.api.fetch import ReferenceFetcher
from phonate.api.keys import Keys
from phonate.api.traffic import Traffic
from phonate.api.voice_desk import VoiceDesk
from phonate.settings import Settings
from phonate.speech.routing import LanguageRouting
from phonate.speech.service import SpeechService
from phonate.speech.session_events import SessionLimits
from phonate.voices.catalog import VoiceCatalog

if TYPE_CHECKING:
    from phonate.api.metrics import Metrics
    from phonate.api.models import ModelCatalog


class OpenSession(Protocol):
    """What a server that stops asks of a WebSocket session."""

    def drain(self, within_s: float) -> None: ...
    def give_up(self) -> None: ...


@dataclass(frozen=True, slots=True)
class State:
    settings: Settings
    service: SpeechService
    voices: VoiceCatalog
    models: ModelCatalog
    metrics: Metrics
    routing: LanguageRouting
    desk: VoiceDesk
    fetcher: ReferenceFetcher
    encoders: Executor
    """Where audio is encoded: never on the loop."""
    session_limits: SessionLimits
    keys: Keys
    traffic: Traffic
    sessions: dict[OpenSession, str] = field(default_factory=dict)
    """The WebSocket sessions that are open, and whose each is."""

    def reload(self) -> None:
        """Look again at what others may have changed on the disk (SIGHUP). Blocks."""
        self.keys.reload()
        self.desk.library.reload()


async def _state(connection: HTTPConnection) -> State:
    state: State = connection.app.state.phonate
    return state


AppState = Annotated[State, Depends(_state)]
