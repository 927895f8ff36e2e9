"""Wiring: settings and an engine become an ASGI application. Nothing else happens here."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from fastapi import FastAPI

from phonate import __version__
from phonate.api import envelope, health, models, speech, voices
from phonate.api.models import ModelCatalog
from phonate.api.state import State
from phonate.engine.base import Engine
from phonate.settings import Settings
from phonate.speech.service import Limits, SpeechService
from phonate.speech.shaping import SoundOptions
from phonate.voices.catalog import VoiceCatalog, parse_aliases


def create_app(settings: Settings, engine: Engine) -> FastAPI:
    """The whole server around one engine. Raises SetupError for settings that do not fit it."""
    voice_catalog = VoiceCatalog(engine.info, parse_aliases(settings.voice_alias))
    model_catalog = ModelCatalog(engine.info.model, settings.alias, created=int(time.time()))

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = SpeechService(engine, limits_of(settings), sound_of(settings))
        encoders = ThreadPoolExecutor(min(4, os.cpu_count() or 1), "phonate-encode")
        app.state.phonate = State(settings, service, voice_catalog, model_catalog, encoders)
        await service.start()
        try:
            yield
        finally:
            await service.drain(settings.shutdown_timeout)
            await service.close()
            encoders.shutdown(wait=False, cancel_futures=True)

    app = FastAPI(
        title="phonate",
        version=__version__,
        summary="Text in, voice out, over the OpenAI audio API.",
        lifespan=lifespan,
    )
    envelope.install(app)
    for router in (speech.router, voices.router, models.router, health.router):
        app.include_router(router)
    app.add_middleware(envelope.RequestContext)
    return app


def limits_of(settings: Settings) -> Limits:
    return Limits(
        max_active=settings.max_batch,
        max_queued=settings.max_queued_requests,
        max_output_bytes=settings.max_output_bytes,
        synthesis_timeout_s=settings.synthesis_timeout,
        stall_timeout_s=settings.stall_timeout,
    )


def sound_of(settings: Settings) -> SoundOptions:
    return SoundOptions(
        trim_silence=settings.trim_silence,
        silence_threshold=settings.silence_threshold,
        pre_roll_ms=settings.trim_pre_roll_ms,
        fade_in_ms=settings.trim_fade_in_ms,
        fade_out_after_ms=settings.fragment_fade_out_after_ms,
        startup_buffer_ms=settings.startup_buffer_ms,
        clause_pause_s=settings.comma_silence_duration,
        sentence_pause_s=settings.sentence_silence_duration,
    )
