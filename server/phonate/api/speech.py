"""POST /v1/audio/speech."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from phonate.api.audio_response import SPEECH, AudioResponse
from phonate.api.openapi import answers
from phonate.api.schemas import SpeechBody
from phonate.api.state import AppState

router = APIRouter(tags=["speech"])


@router.post(
    "/v1/audio/speech",
    response_class=Response,
    responses=answers(None, 400, 404, 415, 429, 502, 503, 504, **SPEECH),
)
async def create_speech(body: SpeechBody, http: Request, state: AppState) -> Response:
    """Speak `input`. Chunked audio by default, a whole file with `stream:false` or for a client
    of HTTP/1.0, server-sent events with `stream_format:"sse"`."""
    delivery = "whole" if http.scope["http_version"] == "1.0" else body.delivery
    request = await body.to_request(
        state, http.state.request_id, http.state.key, whole=delivery == "whole"
    )
    headers = {"X-Voice": request.voice, "X-Language": request.language or "auto"}
    if unspoken := state.service.engine.unspoken(request.text, request.speaker):
        headers["X-Unspoken-Text"] = unspoken
    state.service.observer.note(
        voice=request.voice,
        language=request.language or "auto",
        format=body.format.name,
        delivery=delivery,
    )
    utterance = state.service.speak(request)
    return AudioResponse(utterance, body.format, delivery, headers, state.encoders)
