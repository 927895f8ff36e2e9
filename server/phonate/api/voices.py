"""GET /v1/audio/voices: what may stand in `voice`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from phonate.api.state import AppState

router = APIRouter(tags=["voices"])


@router.get("/v1/audio/voices")
async def list_voices(state: AppState, model: str | None = None) -> dict[str, Any]:
    """Every voice, each with `id` and `name`. `model` filters; there is one model, so it is only
    checked."""
    state.models.check(model)
    voices = []
    for entry in state.voices.entries():
        voice = {"id": entry.id, "name": entry.name, "kind": entry.kind}
        if entry.language is not None:
            voice["language"] = entry.language
        voices.append(voice)
    return {"object": "list", "voices": voices}
