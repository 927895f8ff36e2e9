"""/openapi.json: what FastAPI finds out by itself, and what it cannot know.

    @router.get("/v1/models", responses=answers(ModelList), response_model=None)
    @router.post("/v1/audio/speech", responses=answers(None, 400, 502))

`describe` adds what holds for every route: error envelopes, request ids, keys; and brings back what
its own model of a schema loses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel

from phonate.api import answers as shapes
from phonate.api.guard import LISTINGS, OPEN

Doc = dict[str, Any]

ERRORS = {
    400: "A field is wrong (`param` names it), or the running model cannot do what was asked.",
    401: "A key is needed, and none or a wrong one came.",
    403: "The Host or Origin is not allowed.",
    404: "There is nothing of this name or id.",
    409: "It collides with what is there.",
    413: "The body, a file in it, or the audio that would come of it is too large.",
    415: "The body is of a type that is not read here.",
    429: "Too many requests with this key.",
    500: "An unexpected error. The log has more, under the request's id.",
    502: "The engine failed, or made nothing that a person can hear.",
    503: "The queue is full, or the server is starting or stopping.",
    504: "The time ran out (--synthesis-timeout).",
}

RETRY = (429, 503)

TAGS = [
    {"name": "speech", "description": "Text in, voice out."},
    {"name": "voices", "description": "Voices that may speak, registered ones, and consents."},
    {"name": "models", "description": "Ids that may stand in `model`."},
    {"name": "languages", "description": "Which language a text is in."},
    {"name": "capabilities", "description": "What this server can do."},
    {"name": "health", "description": "For load balancers, supervisors and Prometheus."},
]

DESCRIPTION = """\
A client of OpenAI's audio API works unchanged. `null` means absent, unknown fields are ignored,
known ones are honoured or refused with their name. Every answer has an `X-Request-ID`.

Two WebSockets stand beside these routes, which OpenAPI cannot describe (`x-websockets`).
"""

WEBSOCKETS = {
    "/v1/audio/speech-stream": {
        "summary": "Text in as it is written, speech out as it is spoken",
        "description": "JSON events both ways, PCM (s16le, 24 kHz, mono) as binary frames from the "
        "server. Begin with a `config` event; docs/PROTOCOL.md has them all.",
    },
    "/v1/audio/speech/stream": {
        "summary": "The same in the words of vLLM-Omni's clients",
        "description": "Begin with a `session.config` event; docs/PROTOCOL.md has the rest.",
    },
}

MAX_INT64 = 2**63 - 1


def answers(model: type[BaseModel] | None, *errors: int, **more: Any) -> dict[int | str, Doc]:
    """`responses` of a route: 200 with `model`, or as `more` says, and the errors of its own."""
    good: Doc = {"description": "Done.", **more}
    if model is not None:
        good["model"] = model
    return {200: good, **{status: {"description": ERRORS[status]} for status in errors}}


def operation_id(route: APIRoute) -> str:
    """create_speech -> createSpeech"""
    first, *rest = route.name.split("_")
    return first + "".join(map(str.title, rest))


def describe(app: FastAPI, *, keys: bool, protect_listings: bool, max_input_chars: int) -> None:
    """Make `app.openapi()` tell everything. `keys`: a key is needed here."""
    made: list[Doc] = []

    def openapi() -> Doc:
        if not made:
            doc = get_openapi(
                title=app.title, version=app.version, summary=app.summary,
                description=DESCRIPTION, routes=app.routes, tags=TAGS,
            )  # fmt: skip
            made.append(_complete(doc, _key_rule(keys, protect_listings), max_input_chars))
        return made[0]

    app.openapi = openapi  # type: ignore[method-assign]


def _complete(doc: Doc, key_rule: Callable[[str, str], list[Doc]], max_input_chars: int) -> Doc:
    parts = doc["components"]
    for name in ("HTTPValidationError", "ValidationError"):
        parts["schemas"].pop(name, None)
    parts["schemas"].update(_schemas_of(shapes.Error, *EVENTS))
    parts["schemas"]["SpeechEvent"] = SPEECH_EVENT
    parts["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "--api-key, --api-key-file"}
    }
    parts["headers"] = HEADERS
    parts["parameters"] = PARAMETERS
    for path, method, operation in _operations(doc):
        operation["security"] = key_rule(path, method)
        operation.setdefault("parameters", []).append(
            {"$ref": "#/components/parameters/X-Request-ID"}
        )
        _complete_responses(operation)
    for schema in _integers(doc):
        _make_exact(schema)
    parts["schemas"]["SpeechBody"]["properties"]["input"]["maxLength"] = max_input_chars
    doc["x-websockets"] = WEBSOCKETS
    return doc


EVENTS = (shapes.SpeechAudioDelta, shapes.SpeechAudioDone, shapes.SpeechAudioError)

SPEECH_EVENT: Doc = {
    "type": "object",
    "description": "`stream_format: sse`: one server-sent event. Its data is JSON of that type.",
    "required": ["event", "data"],
    "properties": {
        "event": {
            "type": "string",
            "enum": ["speech.audio.delta", "speech.audio.done", "speech.audio.error"],
        },
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {
                "oneOf": [{"$ref": f"#/components/schemas/{event.__name__}"} for event in EVENTS]
            },
        },
    },
}

HEADERS: dict[str, Doc] = {
    "X-Request-ID": {
        "description": "The request's own, if it matches `[A-Za-z0-9._:-]{1,128}`, else a new one.",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"},
        "required": True,
    },
    "Retry-After": {
        "description": "Seconds after which it may go better.",
        "schema": {"type": "integer", "minimum": 1},
        "required": True,
    },
    "WWW-Authenticate": {"schema": {"type": "string", "const": "Bearer"}, "required": True},
}


PARAMETERS: dict[str, Doc] = {
    "X-Request-ID": {
        "name": "X-Request-ID",
        "in": "header",
        "description": "Comes back, and is in the log, if it is well-formed.",
        "schema": {"type": "string"},
    }
}


def _key_rule(keys: bool, protect_listings: bool) -> Callable[[str, str], list[Doc]]:
    """What `api.guard` does, as `security` of an operation."""
    with_key: list[Doc] = [{"key": []}] if keys else [{}, {"key": []}]

    def rule(path: str, method: str) -> list[Doc]:
        listing = method == "get" and LISTINGS.fullmatch(path) and not protect_listings
        return [] if path in OPEN or listing else with_key

    return rule


def _operations(doc: Doc) -> Iterator[tuple[str, str, Doc]]:
    for path, methods in doc["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _complete_responses(operation: Doc) -> None:
    responses = operation["responses"]
    responses.pop("422", None)
    common = [403, 500] + ([401] if operation["security"] else [])
    if "requestBody" in operation:
        common.append(413)
    for status in common:
        responses.setdefault(str(status), {"description": ERRORS[status]})
    for status, response in responses.items():
        headers = response.setdefault("headers", {})
        headers["X-Request-ID"] = _header("X-Request-ID")
        if int(status) in RETRY and "content" not in response:
            headers["Retry-After"] = _header("Retry-After")
        if status == "401":
            headers["WWW-Authenticate"] = _header("WWW-Authenticate")
        if status != "200" and "content" not in response:
            response["content"] = {
                "application/json": {"schema": {"$ref": "#/components/schemas/Error"}}
            }
    operation["responses"] = dict(sorted(responses.items()))


def _header(name: str) -> Doc:
    return {"$ref": f"#/components/headers/{name}"}


def _schemas_of(*models: type[BaseModel]) -> Doc:
    found: Doc = {}
    for model in models:
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        found.update(schema.pop("$defs", {}))
        found[model.__name__] = schema
    return found


def _integers(part: Any) -> Iterator[Doc]:
    """Every schema of whole numbers in `part`."""
    if isinstance(part, dict):
        kind = part.get("type")
        if kind == "integer" or (isinstance(kind, list) and "integer" in kind):
            yield part
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            yield from _integers(inner)


def _make_exact(schema: Doc) -> None:
    """FastAPI turns limits into floats, and 2^63 - 1 into 2^63."""
    for name in ("minimum", "maximum"):
        if isinstance(schema.get(name), float):
            schema[name] = min(int(schema[name]), MAX_INT64)
