"""POST /v1/vapi/voice: the custom voice of a Vapi assistant.

Vapi calls a webhook for every piece it wants spoken and plays raw PCM at the rate it asked for.
Which voice speaks stands in the address that is given to Vapi: `/v1/vapi/voice?voice=anna`.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BeforeValidator, WithJsonSchema
from starlette.responses import Response

from phonate.api.audio_response import BINARY, SPEECH
from phonate.api.openapi import answers
from phonate.api.schemas import SpeechBody
from phonate.api.speech import create_speech
from phonate.api.state import AppState
from phonate.audio.encoders import FORMATS
from phonate.audio.resample import RATES
from phonate.errors import InvalidRequest
from phonate.speech import fields
from phonate.speech.fields import Fields, refuse, shown

router = APIRouter(tags=["speech"])

_MESSAGE = {
    "type": "object",
    "description": "Other fields tell about the call and are ignored.",
    "required": ["type", "text"],
    "properties": {
        "type": {"type": "string", "const": "voice-request"},
        "text": {"type": "string", "pattern": r"\S"},
        "sampleRate": {"type": ["integer", "null"], "enum": [*RATES, None], "default": 24000},
    },
}
_PCM = {
    **SPEECH,
    "description": "Samples as they are made: 16-bit, mono, little-endian.",
    "content": {FORMATS["pcm"].content_type: BINARY},
}


def _check_message(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise refuse(f"must be an object with 'type', 'text' and 'sampleRate', not {shown(value)}.")
    return value


class VapiBody(Fields):
    """What Vapi sends; it also tells about the call, which is ignored."""

    message: Annotated[dict[str, Any], BeforeValidator(_check_message), WithJsonSchema(_MESSAGE)]


@router.post(
    "/v1/vapi/voice",
    response_class=Response,
    responses=answers(None, 400, 404, 429, 502, 503, 504, **_PCM),
)
async def speak_for_vapi(
    body: VapiBody,
    http: Request,
    state: AppState,
    voice: str | None = None,
    language: str | None = None,
) -> Response:
    """Speak `message.text` as 16-bit mono PCM at `message.sampleRate`, streamed."""
    message = body.message
    if message.get("type") != "voice-request":
        raise InvalidRequest(
            f"message.type must be 'voice-request', not {shown(message.get('type'))}: this address "
            "belongs into the `server.url` of a Vapi custom voice.",
            param="message",
        )
    wanted = {
        "input": message.get("text"),
        "sample_rate": message.get("sampleRate"),
        "response_format": "pcm",
        "voice": voice,
        "language": language,
    }
    return await create_speech(fields.read(SpeechBody, wanted), http, state)
