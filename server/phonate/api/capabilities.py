"""GET /v1/capabilities: what this server can do, so that nobody has to try."""

from __future__ import annotations

import dataclasses
from typing import Any

from fastapi import APIRouter

from phonate import __version__
from phonate.api.answers import Capabilities
from phonate.api.openapi import answers
from phonate.api.state import AppState
from phonate.audio.encoders import FORMATS
from phonate.audio.resample import RATES
from phonate.speech.language_names import CANONICAL

router = APIRouter(tags=["capabilities"])

ENDPOINTS = (
    "GET /",
    "POST /v1/audio/speech",
    "POST /v1/audio/speech/batch",
    "WS /v1/audio/speech-stream",
    "WS /v1/audio/speech/stream",
    "POST /v1/vapi/voice",
    "GET /v1/audio/voices",
    "POST /v1/audio/voices",
    "DELETE /v1/audio/voices/{id}",
    "POST /v1/audio/voice_consents",
    "GET /v1/models",
    "POST /v1/text/languages",
    "GET /health",
    "GET /ready",
    "GET /metrics",
)


@router.get("/v1/capabilities", responses=answers(Capabilities), response_model=None)
async def get_capabilities(state: AppState) -> dict[str, Any]:
    """Engine, audio, limits, controls and routes."""
    info, settings = state.service.engine.info, state.settings
    return {
        "server": {"name": "phonate", "version": __version__},
        "needs_key": bool(settings.api_key or settings.api_key_file),
        "protocol": {"http": "openai-audio", "websocket": "phonate-1"},
        "engine": {
            "name": info.name,
            "model": info.model,
            "device": info.device,
            "sample_rate": info.sample_rate,
            "max_batch": info.max_batch,
            "details": info.details,
        },
        "audio": {
            "formats": {name: row.content_type for name, row in FORMATS.items()},
            "sample_rates": list(RATES),
            "default_format": "mp3",
            "channels": 1,
        },
        "languages": {
            "spoken": list(info.languages),
            "identified": list(CANONICAL),
            "fallback": state.routing.fallback,
        },
        "limits": {
            "max_input_chars": settings.max_input_chars,
            "max_request_bytes": settings.max_request_bytes,
            "max_output_bytes": settings.max_output_bytes,
            "max_queued_requests": settings.max_queued_requests,
            "max_sessions": settings.max_sessions,
            "max_voices": settings.max_voices,
        },
        "controls": {
            "speed": {"min": 0.25, "max": 4},
            "seed": info.uses_seed,
            "sampling": info.takes_sampling,
            "instructions": info.can_instruct,
        },
        "features": {
            "clone": info.can_clone,
            "clone_with_transcript": info.can_icl,
            "speakers": bool(info.speakers),
            "voice_design": info.needs_instructions,
            "streaming": True,
            "batch": True,
        },
        "endpoints": list(ENDPOINTS),
        "session": dataclasses.asdict(state.session_limits),
    }
