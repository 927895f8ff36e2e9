"""GET /v1/models, /v1/models/{id}, /v1/audio/models; and which model ids are served."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter

from phonate.api.answers import AudioModelList, Model, ModelList
from phonate.api.openapi import answers
from phonate.api.state import AppState
from phonate.errors import ModelNotFound

router = APIRouter(tags=["models"])

OPENAI_MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")


class ModelCatalog:
    """The served ids: the model's own, `--alias`, and OpenAI's as aliases of it."""

    def __init__(self, model: str, aliases: Iterable[str], created: int) -> None:
        self.default = model
        self.ids = list(dict.fromkeys([model, *aliases, *OPENAI_MODELS]))
        self.created = created

    def check(self, name: str | None) -> str:
        """The id to report for `name`; None and "" mean the default. Raises ModelNotFound.
        A dated OpenAI name (gpt-4o-mini-tts-2025-12-15) is one of theirs too."""
        if not name or name in self.ids or name.startswith("gpt-4o-mini-tts"):
            return self.default
        raise ModelNotFound(
            f"There is no model {name!r} here. Served: {', '.join(self.ids)}.", param="model"
        )

    def entry(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self.created, "owned_by": "phonate"}


@router.get("/v1/models", responses=answers(ModelList), response_model=None)
async def list_models(state: AppState) -> dict[str, Any]:
    """The models a client may name, OpenAI's aliases included."""
    models = state.models
    return {"object": "list", "data": [models.entry(name) for name in models.ids]}


@router.get("/v1/models/{model_id:path}", responses=answers(Model, 404), response_model=None)
async def get_model(model_id: str, state: AppState) -> dict[str, Any]:
    """One model, or 404."""
    state.models.check(model_id)
    return state.models.entry(model_id)


@router.get("/v1/audio/models", responses=answers(AudioModelList), response_model=None)
async def list_audio_models(state: AppState) -> dict[str, Any]:
    """The same for clients that ask here (Open WebUI)."""
    return {"models": [{"id": name, "name": name} for name in state.models.ids]}
