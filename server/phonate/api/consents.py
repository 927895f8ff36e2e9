"""OpenAI's consent records: /v1/audio/voice_consents."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from phonate.api.uploads import media_type, parse_json, read_form, unsupported
from phonate.api.voice_desk import Desk, VoiceDesk
from phonate.errors import Conflict, InvalidRequest
from phonate.voices.consents import Consent

router = APIRouter(tags=["voices"])

MAX_PAGE = 100


@router.post("/v1/audio/voice_consents")
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


@router.get("/v1/audio/voice_consents")
async def list_consents(
    desk: Desk, after: str | None = None, limit: str | None = None
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


@router.get("/v1/audio/voice_consents/{consent}")
async def get_consent(consent: str, desk: Desk) -> dict[str, Any]:
    return _describe(await desk.do(desk.consents.get, consent))


@router.post("/v1/audio/voice_consents/{consent}")
async def rename_consent(consent: str, request: Request, desk: Desk) -> dict[str, Any]:
    """JSON: name."""
    if media_type(request) == "multipart/form-data":
        name: object = (await read_form(request)).get("name")
    else:
        name = parse_json(await request.body()).get("name")
    return _describe(await desk.do(desk.consents.rename, consent, name))


@router.delete("/v1/audio/voice_consents/{consent}")
async def delete_consent(consent: str, desk: Desk) -> dict[str, Any]:
    await desk.do(_remove, desk, consent)
    return {"id": consent, "object": "audio.voice_consent", "deleted": True}


def _remove(desk: VoiceDesk, id: str) -> None:
    """A voice must not outlive the consent it stands on."""
    users = [voice.name for voice in desk.library.voices() if voice.consent == id]
    if users:
        raise Conflict(
            f"{len(users)} voices stand on this consent, {users[0]!r} for one. Delete them first.",
            param="consent",
        )
    desk.consents.remove(id)


def _limit(raw: str | None) -> int:
    if raw is None:
        return 20
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
