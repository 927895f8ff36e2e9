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
    """503 only when a running synthesis makes no progress or the engine is gone: a full queue, a
    paused session or a slow reader is not ill health."""
    report = dataclasses.asdict(state.service.health())
    healthy = report.pop("ok")
    return JSONResponse(
        {"status": "ok" if healthy else "degraded", **report}, status_code=200 if healthy else 503
    )


@router.get("/ready")
async def ready(state: AppState) -> Response:
    """200 after warm-up, 503 before it and while shutting down."""
    is_ready = state.service.state is State.READY
    return JSONResponse({"status": state.service.state.value}, status_code=200 if is_ready else 503)


@router.get("/v1/test")
async def alive() -> dict[str, str]:
    """Some clients ask this to see whether anybody is there."""
    return {"status": "ok"}
