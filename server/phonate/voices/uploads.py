"""From the fields of an upload, or of an imported line, to a checked draft.

    name            required
    one of          wav_b64 | audio_sample (bytes) | spk_b64 and rvq_b64 | speaker_embedding
    optional        ref_text, language, description (or speaker_description), consent

None and blank text mean absent. wav_b64 may hold any accepted container; the name is historical.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any

from phonate.audio.decode import MAX_BYTES
from phonate.audio.reference import load_reference
from phonate.errors import InvalidRequest, TooLarge
from phonate.voices.draft import (
    Details,
    Draft,
    draft_of_embedding,
    draft_of_latents,
    draft_of_recording,
)
from phonate.voices.latents import MAX_EMBEDDING_DIM, unpack_rvq, unpack_spk
from phonate.voices.voice import VoiceKind

Fields = Mapping[str, Any]

SOURCES = ("wav_b64", "audio_sample", "spk_b64", "rvq_b64", "speaker_embedding")

_MAX_BASE64_CHARS = MAX_BYTES * 4 // 3 + 4096
"""10 MiB encoded, with room for line breaks and a data: prefix."""


def draft_from_fields(
    fields: Fields,
    *,
    kind: VoiceKind = "registered",
    resolve_language: Callable[[str], str | None] | None = None,
) -> Draft:
    """Raises InvalidRequest, TooLarge, UnsupportedMedia, each naming its field. CPU-bound: decoding
    30 s takes some 100 ms. `resolve_language`: any name of a language to its canonical one."""
    given = {key: value for key, value in fields.items() if not _is_absent(value)}
    language = given.get("language")
    if resolve_language is not None and isinstance(language, str):
        language = resolve_language(language)
    details = Details.clean(
        name=given.get("name"),
        language=language,
        description=given.get("description", given.get("speaker_description")),
        ref_text=given.get("ref_text"),
        consent=given.get("consent"),
        kind=kind,
    )
    sources = tuple(name for name in SOURCES if name in given)
    make = _MAKERS.get(sources)
    if make is None:
        raise _wrong_sources(sources)
    return make(details, given)


def _is_absent(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _of_wav_b64(details: Details, given: Fields) -> Draft:
    data = decode_base64(given["wav_b64"], "wav_b64")
    return draft_of_recording(details, load_reference(data, param="wav_b64").samples)


def _of_audio_sample(details: Details, given: Fields) -> Draft:
    data = given["audio_sample"]
    if not isinstance(data, bytes):
        raise InvalidRequest(
            "audio_sample must be a file in a multipart/form-data body; in JSON send wav_b64.",
            param="audio_sample",
        )
    return draft_of_recording(details, load_reference(data, param="audio_sample").samples)


def _of_latents(details: Details, given: Fields) -> Draft:
    embedding = unpack_spk(decode_base64(given["spk_b64"], "spk_b64"))
    codes = unpack_rvq(decode_base64(given["rvq_b64"], "rvq_b64"))
    return draft_of_latents(details, embedding, codes)


def _of_embedding(details: Details, given: Fields) -> Draft:
    return draft_of_embedding(details, read_embedding(given["speaker_embedding"]))


_MAKERS: dict[tuple[str, ...], Callable[[Details, Fields], Draft]] = {
    ("wav_b64",): _of_wav_b64,
    ("audio_sample",): _of_audio_sample,
    ("spk_b64", "rvq_b64"): _of_latents,
    ("speaker_embedding",): _of_embedding,
}


def _wrong_sources(sources: tuple[str, ...]) -> InvalidRequest:
    expected = (
        "Send one of: audio_sample (a file), wav_b64, spk_b64 with rvq_b64, speaker_embedding."
    )
    if not sources:
        return InvalidRequest(f"There is nothing to make a voice from. {expected}", param="wav_b64")
    if len(sources) == 1:
        return InvalidRequest(
            f"{sources[0]} needs its other half: spk_b64 and rvq_b64 go together. {expected}",
            param=sources[0],
        )
    return InvalidRequest(
        f"{' and '.join(sources)} exclude each other. {expected}", param=sources[1]
    )


def decode_base64(value: object, param: str) -> bytes:
    """Standard or URL-safe, line breaks and a `data:...;base64,` prefix allowed."""
    if not isinstance(value, str):
        raise InvalidRequest(f"{param} must be a base64 string.", param=param)
    if len(value) > _MAX_BASE64_CHARS:
        raise TooLarge(f"{param} holds more than {MAX_BYTES:,} bytes.", param=param)
    text = value.strip()
    if text[:5].lower() == "data:":
        head, _, text = text.partition(",")
        if not head.lower().endswith(";base64"):
            raise InvalidRequest(f"{param} is a data: URL without ;base64.", param=param)
    compact = "".join(text.split()).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(compact + "=" * (-len(compact) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"{param} is not valid base64.", param=param) from error


def read_embedding(value: object, param: str = "speaker_embedding") -> list[float]:
    """A list of numbers, or JSON text of one (form fields are text)."""
    if isinstance(value, str):
        if len(value) > 64 * MAX_EMBEDDING_DIM:
            raise TooLarge(f"{param} is too long.", param=param)
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"{param} is not a JSON list of numbers.", param=param) from error
    if not isinstance(value, list) or len(value) > MAX_EMBEDDING_DIM:
        raise InvalidRequest(
            f"{param} must be a list of at most {MAX_EMBEDDING_DIM} numbers.", param=param
        )
    if any(isinstance(x, bool) or not isinstance(x, int | float) for x in value):
        raise InvalidRequest(f"{param} must hold numbers only.", param=param)
    return value
