"""Bodies that carry a recording: multipart/form-data, or JSON with base64."""

from __future__ import annotations

import json
from typing import Any

from starlette.datastructures import UploadFile
from starlette.requests import Request

from phonate.audio.decode import MAX_BYTES
from phonate.errors import InvalidRequest, TooLarge, UnsupportedMedia
from phonate.voices.latents import MAX_EMBEDDING_DIM

_MAX_FIELD_BYTES = 64 * MAX_EMBEDDING_DIM
"""An embedding as JSON text is the longest field that is not a file."""


async def read_form(request: Request) -> dict[str, str | bytes]:
    """The fields of a multipart body, files as bytes. Raises TooLarge for a file over 10 MiB."""
    fields: dict[str, str | bytes] = {}
    async with request.form(max_files=4, max_fields=32, max_part_size=_MAX_FIELD_BYTES) as form:
        for name, value in form.multi_items():
            fields[name] = await _read_file(name, value) if isinstance(value, UploadFile) else value
    return fields


async def _read_file(name: str, file: UploadFile) -> bytes:
    data = await file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise TooLarge(f"{name} has more than {MAX_BYTES:,} bytes (10 MiB).", param=name)
    return data


def parse_json(body: bytes) -> dict[str, Any]:
    """A JSON object, or InvalidRequest."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("The body is not valid JSON.", code="invalid_json") from error
    if not isinstance(value, dict):
        raise InvalidRequest("The body must be a JSON object.")
    return value


def media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def unsupported(request: Request, *expected: str) -> UnsupportedMedia:
    return UnsupportedMedia(
        f"Content-Type {media_type(request) or 'missing'!r}: send {' or '.join(expected)}."
    )
