"""OpenAI's consent records: /v1/audio/voice_consents."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import WithJsonSchema

from phonate.api.answers import DeletedVoiceConsent, VoiceConsent, VoiceConsentList
from phonate.api.openapi import answers
from phonate.api.uploads import media_type, parse_json, read_form, unsupported
from phonate.api.voice_desk import Desk, VoiceDesk
from phonate.errors import Conflict, InvalidRequest
from phonate.voices.consents import Consent
from phonate.voices.draft import MAX_LANGUAGE_CHARS
from phonate.voices.voice import MAX_NAME_CHARS

router = APIRouter(tags=["voices"])

MAX_PAGE = 100
PAGE = 20

Limit = Annotated[
    str | None,
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": PAGE}),
]

_NAME = {"type": "string", "minLength": 1, "maxLength": MAX_NAME_CHARS}
_NEW = {
    "name": _NAME,
    "language": {
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_LANGUAGE_CHARS,
        "description": "A tag such as en-US.",
    },
    "recording": {
        "type": "string",
        "format": "binary",
        "description": "The spoken consent, as `audio_sample` of a voice.",
    },
}


def _body(media_type: str, properties: dict[str, Any], *required: str) -> dict[str, Any]:
    schema = {"type": "object", "required": list(required), "properties": properties}
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}


@router.post(
    "/v1/audio/voice_consents",
    openapi_extra=_body("multipart/form-data", _NEW, "name", "language", "recording"),
    responses=answers(VoiceConsent, 400, 409, 413, 415),
    response_model=None,
)
async def create_consent(request: Request, desk: Desk) -> dict[str, Any]:
    """multipart/form-data: name, language, recording (as audio_sample of a voice)."""
    if media_type(request) != "multipart/form-data":
        raise unsupported(request, "multipart/form-data")
    fields = await read_form(request)
    recording = fields.get("recording")
    if not isinstance(recording, bytes):
        raise InvalidRequest(
            "recording is required: a file with the spoken consent.", param="recording"
        )
    made = await desk.do(
        desk.consents.create,
        name=fields.get("name"),
        language=fields.get("language"),
        recording=recording,
    )
    return _describe(made)


@router.get(
    "/v1/audio/voice_consents", responses=answers(VoiceConsentList, 400), response_model=None
)
async def list_consents(
    desk: Desk, after: str | None = None, limit: Limit = None
) -> dict[str, Any]:
    """Newest first; `after` is the last id of the page before."""
    page, more = await desk.do(desk.consents.page, after, _limit(limit))
    return {
        "object": "list",
        "data": [_describe(consent) for consent in page],
        "first_id": page[0].id if page else None,
        "last_id": page[-1].id if page else None,
        "has_more": more,
    }


@router.get(
    "/v1/audio/voice_consents/{consent}",
    responses=answers(VoiceConsent, 404),
    response_model=None,
)
async def get_consent(consent: str, desk: Desk) -> dict[str, Any]:
    """One consent, without its recording."""
    return _describe(await desk.do(desk.consents.get, consent))


@router.post(
    "/v1/audio/voice_consents/{consent}",
    openapi_extra=_body("application/json", {"name": _NAME}, "name"),
    responses=answers(VoiceConsent, 400, 404),
    response_model=None,
)
async def rename_consent(consent: str, request: Request, desk: Desk) -> dict[str, Any]:
    """Give it another name."""
    if media_type(request) == "multipart/form-data":
        name: object = (await read_form(request)).get("name")
    else:
        name = parse_json(await request.body()).get("name")
    return _describe(await desk.do(desk.consents.rename, consent, name))


@router.delete(
    "/v1/audio/voice_consents/{consent}",
    responses=answers(DeletedVoiceConsent, 404, 409),
    response_model=None,
)
async def delete_consent(consent: str, desk: Desk) -> dict[str, Any]:
    """409 while a registered voice stands on it."""
    await desk.do(_remove, desk, consent)
    return {"id": consent, "object": "audio.voice_consent", "deleted": True}


def _remove(desk: VoiceDesk, id: str) -> None:
    """A voice must not outlive the consent it stands on."""
    desk.library.store.look()
    users = [voice.name for voice in desk.library.voices() if voice.consent == id]
    if users:
        raise Conflict(
            f"{len(users)} voices stand on this consent, {users[0]!r} for one. Delete them first.",
            param="consent",
        )
    desk.consents.remove(id)


def _limit(raw: str | None) -> int:
    if raw is None:
        return PAGE
    if not raw.isascii() or not raw.isdigit() or not 1 <= int(raw[:6]) <= MAX_PAGE:
        raise InvalidRequest(f"limit must be a whole number from 1 to {MAX_PAGE}.", param="limit")
    return int(raw[:6])


def _describe(consent: Consent) -> dict[str, Any]:
    return {
        "id": consent.id,
        "object": "audio.voice_consent",
        "name": consent.name,
        "language": consent.language,
        "created_at": consent.created_at,
    }
