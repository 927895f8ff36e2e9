"""Registering, showing and deleting voices: POST /v1/audio/voices, GET and DELETE of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request

from phonate.api.uploads import media_type, parse_json, read_form, unsupported
from phonate.api.voice_desk import Desk, VoiceDesk
from phonate.errors import NotFound, UnsupportedOperation
from phonate.speech.language_names import canonical
from phonate.voices.library import describe
from phonate.voices.uploads import draft_from_fields
from phonate.voices.voice import Voice

router = APIRouter(tags=["voices"])
# `status` in two answers is what clients of RealtimeTTS's server look for.

_WORDS = {
    "name": {"type": "string", "maxLength": 256},
    "ref_text": {"type": "string", "description": "what the recording says; enables ICL"},
    "language": {"type": "string"},
    "consent": {"type": "string"},
    "speaker_embedding": {"type": "array", "items": {"type": "number"}},
}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {
                        **_WORDS,
                        "description": {"type": "string"},
                        "wav_b64": {"type": "string", "format": "byte"},
                        "spk_b64": {"type": "string", "format": "byte"},
                        "rvq_b64": {"type": "string", "format": "byte"},
                    },
                }
            },
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {
                        **_WORDS,
                        "speaker_description": {"type": "string"},
                        "audio_sample": {"type": "string", "format": "binary"},
                    },
                }
            },
        },
    }
}


@router.post("/v1/audio/voices", openapi_extra=_BODY)
async def create_voice(request: Request, desk: Desk) -> dict[str, Any]:
    """Register a voice, or replace the one of this name. Everything is checked, and encoded where
    the engine can, before anything changes."""
    if media_type(request) == "multipart/form-data":
        return await desk.do(_register, desk, await read_form(request))
    if media_type(request) == "application/json":
        return await desk.do(_register_json, desk, await request.body())
    raise unsupported(request, "multipart/form-data", "application/json")


@router.get("/v1/audio/voices/{voice:path}")
async def get_voice(voice: str, desk: Desk) -> dict[str, Any]:
    """One registered or starter voice, by id or name."""
    found = await desk.do(desk.library.find, voice)
    if found is None:
        raise NotFound("There is no registered voice of this name or id.", param="voice")
    return _answer(desk, found)


@router.delete("/v1/audio/voices/{voice:path}")
async def delete_voice(voice: str, desk: Desk) -> dict[str, Any]:
    """Remove a voice, by id or name, with everything made from it."""
    id = await desk.do(desk.library.remove, voice)
    return {"id": id, "object": "audio.voice", "deleted": True, "status": "deleted"}


def _register_json(desk: VoiceDesk, body: bytes) -> dict[str, Any]:
    return _register(desk, parse_json(body))


def _register(desk: VoiceDesk, fields: Mapping[str, Any]) -> dict[str, Any]:
    _refuse_prompts(fields)
    draft = draft_from_fields(fields, resolve_language=canonical)
    desk.consents.check(draft.consent)
    return {**_answer(desk, desk.library.register(draft)), "status": "registered"}


def _refuse_prompts(fields: Mapping[str, Any]) -> None:
    """OpenAI also makes voices from a description; we keep only ones that can be heard."""
    for name in ("prompt", "type"):
        value = fields.get(name)
        if value and value != "audio_sample":
            raise UnsupportedOperation(
                f"{name}: voices are made from a recording, latents or an embedding here, not from "
                "a prompt. Send audio_sample, or speak with a voice_design model and "
                "'instructions'.",
                param=name,
            )


def _answer(desk: VoiceDesk, voice: Voice) -> dict[str, Any]:
    answer = describe(voice)
    if not desk.library.can_clone:
        answer["warning"] = (
            "The voice is stored, but the running model cannot speak with cloned voices. "
            "Start the server with a Qwen3-TTS base model to use it."
        )
    return answer
