"""POST /v1/text/languages: which language a text is in, by the rule that routes voices."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BeforeValidator, WithJsonSchema

from phonate.api.answers import LanguageList
from phonate.api.openapi import answers
from phonate.api.state import AppState
from phonate.speech.fields import Fields, refuse, shown
from phonate.speech.language import Decision
from phonate.speech.language_names import CANONICAL, canonical

router = APIRouter(tags=["languages"])

MAX_TEXTS = 128
MAX_CHARS = 100_000


def _check_texts(value: object) -> list[str]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_TEXTS:
        raise refuse(f"must be a list of 1 to {MAX_TEXTS} strings, not {shown(value)}.")
    for text in value:
        if not isinstance(text, str) or len(text) > MAX_CHARS:
            raise refuse(f"must hold strings of at most {MAX_CHARS} characters.")
    return value


class LanguagesBody(Fields):
    """The texts to identify."""

    texts: Annotated[
        list[str],
        BeforeValidator(_check_texts),
        WithJsonSchema(
            {
                "anyOf": [
                    {
                        "type": "array",
                        "items": {"type": "string", "maxLength": MAX_CHARS},
                        "minItems": 1,
                        "maxItems": MAX_TEXTS,
                    },
                    {"type": "string", "maxLength": MAX_CHARS},
                ]
            }
        ),
    ]
    """One text may stand without a list."""
    fallback: str | None = None
    """What an uncertain text is taken for; absent: the server's own (--language-fallback)."""


@router.post("/v1/text/languages", responses=answers(LanguageList, 400, 429), response_model=None)
async def identify_languages(body: LanguagesBody, state: AppState) -> dict[str, Any]:
    """One result a text, in order. `accepted` tells whether the language is certain enough to
    change a voice for; otherwise `language` is the fallback."""
    fallback = canonical(body.fallback, "fallback")
    decisions = await asyncio.to_thread(
        lambda: [state.routing.identify(text, CANONICAL, fallback) for text in body.texts]
    )
    return {"object": "list", "results": list(map(_result, decisions))}


def _result(decision: Decision) -> dict[str, Any]:
    return {
        "language": decision.language,
        "accepted": decision.accepted,
        "source": decision.source.value,
        "candidates": [
            {"language": c.language, "score": round(c.score, 4)} for c in decision.candidates
        ],
    }
