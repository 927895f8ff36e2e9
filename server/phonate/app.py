"""Wiring: settings and an engine become an ASGI application. Nothing else happens here."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from phonate import __version__
from phonate.api import (
    batch,
    capabilities,
    consents,
    envelope,
    health,
    languages,
    metrics,
    models,
    openapi,
    page,
    registered_voices,
    speech,
    stream,
    vapi,
    voices,
)
from phonate.api.fetch import ReferenceFetcher
from phonate.api.forwarded import Forwarded, make_trusted
from phonate.api.guard import Guard, Policy, is_loopback
from phonate.api.head import HeadAsGet
from phonate.api.keys import Keys
from phonate.api.metrics import Metrics
from phonate.api.models import ModelCatalog
from phonate.api.rates import Buckets
from phonate.api.state import OpenSession, State
from phonate.api.traffic import Traffic
from phonate.api.voice_desk import VoiceDesk, open_desk
from phonate.api.warmup import check_warm_up, warm_up
from phonate.audio.shape import Sound
from phonate.engine.base import Engine, EngineInfo, Reference, Samples
from phonate.errors import SetupError
from phonate.settings import Settings
from phonate.speech.encoding import encode_in_turn
from phonate.speech.language import Identifier
from phonate.speech.routes import make_routes
from phonate.speech.routing import LanguageRouting
from phonate.speech.service import Limits, SpeechService
from phonate.speech.service import State as ServiceState
from phonate.speech.session_events import SessionLimits
from phonate.speech.shaping import SoundOptions
from phonate.traces import open_tracing
from phonate.voices.catalog import VoiceCatalog, parse_aliases
from phonate.voices.starters import bundled_folder

if TYPE_CHECKING:
    from phonate.api.tracing import Tracing

Encode: TypeAlias = Callable[[Samples, str | None], Reference]


ROUTERS = (
    speech.router,
    batch.router,
    vapi.router,
    voices.router,
    registered_voices.router,
    consents.router,
    models.router,
    languages.router,
    capabilities.router,
    health.router,
    metrics.router,
    stream.router,
    page.router,
)


def create_app(settings: Settings, engine: Engine, tracing: Tracing | None = None) -> FastAPI:
    """The whole server around one engine. Raises SetupError for settings that do not fit it.
    `tracing`: instead of what the settings ask for."""
    tracing = tracing or open_tracing(settings)
    policy, cors, traffic = _policy(settings), _cors(settings), Traffic()
    trusted = make_trusted(settings.proxy_headers, settings.trusted_proxy)
    app = FastAPI(
        title="phonate",
        version=__version__,
        summary="Text in, voice out, over the OpenAI audio API.",
        lifespan=_lifespan(settings, engine, policy, tracing, traffic),
        generate_unique_id_function=openapi.operation_id,
        # Their pages run other sites' scripts, with our page's rights. There is docs/API.md.
        docs_url=None,
        redoc_url=None,
    )
    envelope.install(app, ROUTERS)
    for router in ROUTERS:
        app.include_router(router)
    openapi.describe(
        app,
        keys=policy.keys.required,
        protect_listings=settings.protect_listings,
        max_input_chars=settings.max_input_chars,
    )
    app.add_middleware(HeadAsGet)
    # The last added is the outermost: CORS headers belong on refusals too.
    app.add_middleware(Guard, policy=policy, traffic=traffic)
    if tracing is not None:
        app.add_middleware(tracing.middleware)
    app.add_middleware(envelope.RequestContext, traffic=traffic)
    app.add_middleware(CORSMiddleware, **cors)
    app.add_middleware(Forwarded, trusted=trusted, root_path=settings.root_path)
    app.state.traffic = traffic
    return app


class _Late:
    """The service exists once there is a loop; what is made before it asks through here."""

    service: SpeechService
    take_turn: Encode

    def __init__(self) -> None:
        self.sessions: dict[OpenSession, str] = {}

    def encode(self, audio: Samples, text: str | None) -> Reference:
        return self.take_turn(audio, text)

    def gauges(self, opened: Voices) -> dict[str, float]:
        health = self.service.health()
        return {
            "active_requests": health.active_requests,
            "queued_requests": health.queued_requests,
            "stalled": health.stalled,
            "engine_up": health.engine_up,
            "sessions": len(self.sessions),
            "voices": len(opened.desk.library.voices()),
            "voices_reachable": opened.desk.library.store.is_reachable,
        }


def _lifespan(
    settings: Settings,
    engine: Engine,
    policy: Policy,
    tracing: Tracing | None,
    traffic: Traffic,
) -> Callable[[FastAPI], contextlib.AbstractAsyncContextManager[None]]:
    """Opens at once whatever a wrong setting can spoil; the rest when the server starts."""
    info, late, resources = engine.info, _Late(), contextlib.ExitStack()
    opened = resources.enter_context(open_voices(settings, info, late.encode))
    about = {"engine": info.name, "model": info.model, "device": info.device}
    metrics = Metrics(
        lambda: late.gauges(opened),
        lambda: late.service.admission.lanes,
        about,
        lambda: late.service.vitals.restarts,
        traffic,
    )
    observer = metrics if tracing is None else tracing.observe(metrics)
    check_warm_up(settings, opened.voices)
    catalog = ModelCatalog(info.model, settings.alias, created=int(time.time()))

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = SpeechService(engine, limits_of(settings), sound_of(settings), observer)
        late.service = service
        late.take_turn = encode_in_turn(service, asyncio.get_running_loop())
        encoders = ThreadPoolExecutor(min(4, os.cpu_count() or 1), "phonate-encode")
        app.state.voice_desk = opened.desk
        app.state.phonate = State(
            settings=settings,
            service=service,
            voices=opened.voices,
            models=catalog,
            metrics=metrics,
            traffic=traffic,
            sessions=late.sessions,
            routing=opened.routing,
            desk=opened.desk,
            fetcher=ReferenceFetcher(settings.allow_reference_urls),
            encoders=encoders,
            session_limits=session_limits_of(settings),
            keys=policy.keys,
        )
        with resources:
            try:
                await service.warm_up()
                await warm_up(app.state.phonate)
                service.state = ServiceState.READY
            except SetupError as error:
                app.state.start_error = error  # For `serve`, which says it in one line.
                await service.close()
                raise
            try:
                yield
            finally:
                await service.drain(settings.shutdown_timeout)
                await service.close()
                encoders.shutdown(wait=False, cancel_futures=True)
                if tracing is not None:
                    await asyncio.to_thread(tracing.close)

    return lifespan


@dataclass(frozen=True, slots=True)
class Voices:
    """Everything that choosing a voice needs, opened together."""

    voices: VoiceCatalog
    routing: LanguageRouting
    desk: VoiceDesk


@contextlib.contextmanager
def open_voices(settings: Settings, info: EngineInfo, encode: Encode) -> Iterator[Voices]:
    """Raises SetupError for a voice folder, an alias, a route or an identifier that is wrong."""
    starters = bundled_folder() if settings.starter_voices else None
    with open_desk(
        settings.voice_dir, info, encode, max_voices=settings.max_voices, starters=starters
    ) as desk:
        catalog = VoiceCatalog(info, parse_aliases(settings.voice_alias), desk.library)
        routing = LanguageRouting(
            info,
            make_routes(info, settings.voice_language_route, catalog.knows),
            Identifier(settings.language_id_model),
            default=settings.lang,
            fallback=settings.language_fallback,
        )
        yield Voices(catalog, routing, desk)


def _policy(settings: Settings) -> Policy:
    keys = Keys(settings.api_key, settings.api_key_file)
    beyond = settings.uds is None and not is_loopback(settings.host)
    if beyond and not (settings.allow_lan and keys.required):
        raise SetupError(
            f"--host {settings.host}: listening beyond loopback needs --allow-lan and a key "
            "(--api-key-file or --api-key), since everybody on the network can then speak."
        )
    return Policy(
        keys=keys,
        metrics_key=Keys(settings.metrics_key) if settings.metrics_key else None,
        protect_listings=settings.protect_listings,
        max_request_bytes=settings.max_request_bytes,
        body_timeout_s=settings.body_timeout,
        rates=Buckets(rate) if (rate := settings.max_requests_per_minute) else None,
        check_host=not keys.required,
        origins=tuple(settings.cors_origin),
    )


def _cors(settings: Settings) -> dict[str, Any]:
    if "*" in settings.cors_origin:
        raise SetupError("--cors-origin *: name the origins, such as https://app.example.")
    loopback = r"https?://(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?"
    return {
        "allow_origins": settings.cors_origin,
        "allow_origin_regex": None if settings.cors_origin else loopback,
        "allow_methods": ["GET", "POST", "DELETE", "OPTIONS"],
        "allow_headers": ["Authorization", "Content-Type", "X-Request-ID"],
        "expose_headers": EXPOSED_HEADERS,
        "max_age": 600,
    }


EXPOSED_HEADERS = [
    "X-Request-ID", "X-Audio-Encoding", "X-Audio-Sample-Rate", "X-Audio-Channels",
    "X-Audio-Bits-Per-Sample", "X-Voice", "X-Language", "X-Seed", "X-Finish-Reason",
    "X-Audio-Duration-Ms", "X-Usage-Input-Tokens", "X-Usage-Output-Tokens",
    "X-Usage-Total-Tokens", "X-Unspoken-Text", "Retry-After", "Server-Timing",
    "X-RateLimit-Limit-Requests", "X-RateLimit-Remaining-Requests",
    "X-RateLimit-Reset-Requests", "Retry-After-Ms",
]  # fmt: skip


def limits_of(settings: Settings) -> Limits:
    return Limits(
        max_active=settings.max_batch,
        max_queued=settings.max_queued_requests,
        max_output_bytes=settings.max_output_bytes,
        synthesis_timeout_s=settings.synthesis_timeout,
        stall_timeout_s=settings.stall_timeout,
    )


def session_limits_of(settings: Settings) -> SessionLimits:
    return SessionLimits(
        idle_timeout_s=settings.session_idle_timeout,
        pause_timeout_s=settings.pause_timeout,
        send_timeout_s=settings.send_timeout,
        buffer_s=settings.stream_buffer_seconds,
        lookahead_words=settings.fragment_lookahead_words,
        clause_pause_s=settings.comma_silence_duration,
        sentence_pause_s=settings.sentence_silence_duration,
    )


def sound_of(settings: Settings) -> SoundOptions:
    return SoundOptions(
        sound=Sound(
            trim_silence=settings.trim_silence,
            onset_threshold=settings.silence_threshold,
            onset_keep_ms=settings.trim_pre_roll_ms,
            fade_in_ms=settings.trim_fade_in_ms,
            fade_out_after_ms=settings.fragment_fade_out_after_ms,
            startup_ms=settings.startup_buffer_ms,
        ),
        clause_pause_s=settings.comma_silence_duration,
        sentence_pause_s=settings.sentence_silence_duration,
    )
