"""GET /v1/audio/voices: what may stand in `voice`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from phonate.api.answers import VoiceList
from phonate.api.openapi import answers
from phonate.api.state import AppState
from phonate.api.voice_desk import Desk

router = APIRouter(tags=["voices"])


@router.get("/v1/audio/voices", responses=answers(VoiceList, 404), response_model=None)
async def list_voices(state: AppState, desk: Desk, model: str | None = None) -> dict[str, Any]:
    """Every voice, each with `id` and `name`. `model` filters; there is one model, so it is only
    checked."""
    state.models.check(model)
    return {"object": "list", "voices": await desk.do(state.voices.entries)}
