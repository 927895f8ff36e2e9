"""GET /health and /ready: for load balancers, supervisors and people."""

from __future__ import annotations

import dataclasses
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from phonate.api.answers import Alive, HealthReport, Readiness
from phonate.api.openapi import answers
from phonate.api.state import AppState
from phonate.speech.service import State

router = APIRouter(tags=["health"])


def _either(model: type[BaseModel], otherwise: str) -> dict[int | str, dict[str, Any]]:
    """The same shape with 200 and 503."""
    return {**answers(model), 503: {"description": otherwise, "model": model}}


@router.get("/health", responses=_either(HealthReport, "Ill."))
async def get_health(state: AppState) -> Response:
    """503 only when a running synthesis makes no progress or the engine is gone (its process, until
    the next one runs): a full queue, a paused session or a slow reader is not ill health."""
    report = dataclasses.asdict(state.service.health())
    healthy = report.pop("ok")
    return JSONResponse(
        {"status": "ok" if healthy else "degraded", **report}, status_code=200 if healthy else 503
    )


@router.get("/ready", responses=_either(Readiness, "Not yet, or no more."))
async def get_readiness(state: AppState) -> Response:
    """200 after warm-up; 503 before it, while shutting down, and while a lost engine restarts."""
    ready, status = state.service.ready, state.service.state
    told = "restarting" if status is State.READY and not ready else status.value
    return JSONResponse({"status": told}, status_code=200 if ready else 503)


@router.get("/v1/test", responses=answers(Alive), response_model=None)
async def get_alive() -> dict[str, str]:
    """Some clients ask this to see whether anybody is there."""
    return {"status": "ok"}
