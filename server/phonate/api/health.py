"""GET /health and /ready: for load balancers, supervisors and people."""

from __future__ import annotations

import dataclasses

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from phonate.api.state import AppState
from phonate.speech.service import State

router = APIRouter(tags=["health"])


@router.get("/health")
async def health(state: AppState) -> Response:
    """503 only when a running synthesis makes no progress or the engine is gone (its process, until
    the next one runs): a full queue, a paused session or a slow reader is not ill health."""
    report = dataclasses.asdict(state.service.health())
    healthy = report.pop("ok")
    return JSONResponse(
        {"status": "ok" if healthy else "degraded", **report}, status_code=200 if healthy else 503
    )


@router.get("/ready")
async def ready(state: AppState) -> Response:
    """200 after warm-up; 503 before it, while shutting down, and while a lost engine restarts."""
    ready, status = state.service.ready, state.service.state
    told = "restarting" if status is State.READY and not ready else status.value
    return JSONResponse({"status": told}, status_code=200 if ready else 503)


@router.get("/v1/test")
async def alive() -> dict[str, str]:
    """Some clients ask this to see whether anybody is there."""
    return {"status": "ok"}
