"""Registering, showing and deleting voices: POST /v1/audio/voices, GET and DELETE of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request

from phonate.api.answers import CreatedVoice, DeletedVoice, RegisteredVoice
from phonate.api.openapi import answers
from phonate.api.uploads import media_type, parse_json, read_form, unsupported
from phonate.api.voice_desk import Desk, VoiceDesk
from phonate.errors import NotFound, UnsupportedOperation
from phonate.speech.language_names import canonical
from phonate.voices.draft import MAX_CONSENT_CHARS, MAX_LANGUAGE_CHARS
from phonate.voices.latents import MAX_EMBEDDING_DIM
from phonate.voices.library import describe
from phonate.voices.uploads import draft_from_fields
from phonate.voices.voice import MAX_NAME_CHARS, MAX_TEXT_CHARS, Voice

router = APIRouter(tags=["voices"])
# `status` in two answers is what clients of RealtimeTTS's server look for.


def _text(description: str, max_chars: int = MAX_TEXT_CHARS) -> dict[str, Any]:
    return {"type": ["string", "null"], "maxLength": max_chars, "description": description}


_NAME = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_NAME_CHARS,
    "description": "Any script; no slashes or control characters. Replaces the voice of this name.",
}
_REF_TEXT = _text("What the recording says; with it the voice is closer (ICL).")
_WORDS = {
    "language": _text("A name, ISO code or locale.", MAX_LANGUAGE_CHARS),
    "consent": _text("A consent's id, or a reference of your own.", MAX_CONSENT_CHARS),
}
_BASE64 = {"type": "string", "format": "byte"}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {
                        "name": _NAME,
                        "ref_text": _REF_TEXT,
                        **_WORDS,
                        "description": _text("For people."),
                        "wav_b64": {**_BASE64, "description": "A recording of 1 to 30 s."},
                        "spk_b64": {**_BASE64, "description": "float32 x-vector; with rvq_b64."},
                        "rvq_b64": {**_BASE64, "description": "Packed codes; with spk_b64."},
                        "speaker_embedding": {
                            "type": "array",
                            "items": {"type": "number"},
                            "minItems": 1,
                            "maxItems": MAX_EMBEDDING_DIM,
                        },
                    },
                    "oneOf": [
                        {"required": ["wav_b64"]},
                        {"required": ["spk_b64", "rvq_b64"]},
                        {"required": ["speaker_embedding"]},
                    ],
                }
            },
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {
                        "name": _NAME,
                        "ref_text": {**_REF_TEXT, "type": "string"},
                        **{name: {**schema, "type": "string"} for name, schema in _WORDS.items()},
                        "speaker_description": {**_text("For people."), "type": "string"},
                        "audio_sample": {
                            "type": "string",
                            "format": "binary",
                            "description": "wav, mp3, ogg, opus, flac, aac, m4a, mp4 or webm, at "
                            "most 10 MiB, 1 to 30 s.",
                        },
                        "speaker_embedding": {
                            "type": "string",
                            "description": "A JSON list of numbers.",
                        },
                    },
                    "oneOf": [
                        {"required": ["audio_sample"]},
                        {"required": ["speaker_embedding"]},
                    ],
                }
            },
        },
    }
}


@router.post(
    "/v1/audio/voices",
    openapi_extra=_BODY,
    responses=answers(CreatedVoice, 400, 409, 413, 415, 429, 502, 503, 504),
    response_model=None,
)
async def create_voice(request: Request, desk: Desk) -> dict[str, Any]:
    """Register a voice, or replace the one of this name. Everything is checked, and encoded where
    the engine can, before anything changes."""
    if media_type(request) == "multipart/form-data":
        return await desk.do(_register, desk, await read_form(request))
    if media_type(request) == "application/json":
        return await desk.do(_register_json, desk, await request.body())
    raise unsupported(request, "multipart/form-data", "application/json")


@router.get(
    "/v1/audio/voices/{voice:path}",
    responses=answers(RegisteredVoice, 400, 404),
    response_model=None,
)
async def get_voice(voice: str, desk: Desk) -> dict[str, Any]:
    """One registered or starter voice, by id or name."""
    found = await desk.do(desk.library.find, voice)
    if found is None:
        raise NotFound("There is no registered voice of this name or id.", param="voice")
    return _answer(desk, found)


@router.delete(
    "/v1/audio/voices/{voice:path}",
    responses=answers(DeletedVoice, 400, 404),
    response_model=None,
)
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
