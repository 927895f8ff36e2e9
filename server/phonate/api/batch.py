"""POST /v1/audio/speech/batch: up to 32 texts in one request, each with a result of its own.

The shape is vLLM-Omni's. Items take their turns in the same queue as everybody else's requests,
as many at a time as the engine has slots, so that a batch cannot crowd others out.
"""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Request
from pydantic import BeforeValidator, ConfigDict, WithJsonSchema

from phonate.api.answers import Batch
from phonate.api.audio_response import usage_of
from phonate.api.envelope import error_body
from phonate.api.openapi import answers
from phonate.api.presence import when_gone
from phonate.api.schemas import SpeechBody
from phonate.api.state import AppState, State
from phonate.errors import InvalidRequest, PhonateError
from phonate.speech import fields
from phonate.speech.fields import Fields, refuse, shown
from phonate.speech.utterance import Utterance

router = APIRouter(tags=["speech"])

MAX_ITEMS = 32


def _check_items(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_ITEMS:
        raise refuse(f"must be a list of 1 to {MAX_ITEMS} objects, not {shown(value)}.")
    if not all(isinstance(item, Mapping) for item in value):
        raise refuse("must hold objects, each with its own 'input'.")
    return value


class BatchBody(Fields):
    """Every field of a speech request may stand beside `items` as the default of all items."""

    model_config = ConfigDict(extra="allow")

    items: Annotated[
        list[dict[str, Any]],
        BeforeValidator(_check_items),
        WithJsonSchema(
            {
                "type": "array",
                "items": {"type": "object"},
                "minItems": 1,
                "maxItems": MAX_ITEMS,
                "description": "Each with the fields of a SpeechBody. One that is wrong has an "
                "error for its result.",
            }
        ),
    ]


class _Batch:
    """One batch on its way: a few workers, results by index."""

    def __init__(self, state: State, body: BatchBody, request_id: str, key: str) -> None:
        self._state = state
        self._items = body.items
        self._defaults = body.model_extra or {}
        self._request_id = request_id
        self._key = key
        self._running: set[Utterance] = set()
        self._gone = False

    async def run(self) -> list[dict[str, Any]]:
        """Results in the order of the items."""
        places = asyncio.Semaphore(self._state.settings.max_batch)

        async def one(index: int) -> dict[str, Any]:
            async with places:
                return await self._result(index)

        return list(await asyncio.gather(*(one(index) for index in range(len(self._items)))))

    def cancel(self) -> None:
        self._gone = True
        for utterance in self._running:
            utterance.cancel("client_gone")

    async def _result(self, index: int) -> dict[str, Any]:
        try:
            return {"index": index, "status": "success", **await self._speak(self._items[index])}
        except PhonateError as error:
            return {"index": index, "status": "error", **error_body(error)}

    async def _speak(self, item: dict[str, Any]) -> dict[str, Any]:
        body = fields.read(SpeechBody, {**self._defaults, **_given(item)})
        if body.delivery == "sse":
            raise InvalidRequest(
                "stream_format: an item of a batch comes whole.", param="stream_format"
            )
        request = await body.to_request(self._state, self._request_id, self._key, whole=True)
        utterance = self._state.service.speak(request)
        self._running.add(utterance)
        if self._gone:
            utterance.cancel("client_gone")
        try:
            pcm = np.concatenate([block async for block in utterance.blocks()])
        finally:
            self._running.discard(utterance)
        rate = utterance.request.sample_rate
        with utterance.stage("encode", format=body.format.name, samples=len(pcm)):
            audio = await asyncio.get_running_loop().run_in_executor(
                self._state.encoders, body.format.encode, pcm, rate
            )
        return {
            "audio_data": base64.b64encode(audio).decode("ascii"),
            "media_type": body.format.content_type,
            "duration_ms": round(len(pcm) * 1000 / rate),
            "voice": request.voice,
            "language": request.language or "auto",
            "seed": utterance.seed,
            "finish_reason": utterance.finish_reason,
            "usage": usage_of(utterance),
        }


def _given(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item's null does not hide a default."""
    return {name: value for name, value in item.items() if value is not None}


@router.post("/v1/audio/speech/batch", responses=answers(Batch, 400, 429), response_model=None)
async def create_batch(body: BatchBody, http: Request, state: AppState) -> dict[str, Any]:
    """Speak every item; one that fails says why and does not hurt the others."""
    batch = _Batch(state, body, http.state.request_id, http.state.key)
    async with when_gone(http.receive, batch.cancel):
        results = await batch.run()
    succeeded = sum(result["status"] == "success" for result in results)
    return {
        "id": "speech-batch-" + uuid.uuid4().hex[:12],
        "results": results,
        "total": len(results),
        "succeeded": succeeded,
        "failed": len(results) - succeeded,
    }
