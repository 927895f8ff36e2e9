"""/openapi.json says everything; whether it is true is for tests/schema."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from support import running

from phonate.api.capabilities import ENDPOINTS
from phonate.api.schemas import SpeechBody
from phonate.engine.scripted import ScriptedEngine


def document_of(**options: Any) -> dict[str, Any]:
    with running(ScriptedEngine(), **options) as server:
        key = {"Authorization": f"Bearer {options.get('api_key')}"}
        document: dict[str, Any] = httpx.get(f"{server.address}/openapi.json", headers=key).json()
    return document


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return document_of()


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_every_route_is_there(document):
    told = {text.partition("{")[0] for text in operations(document)}
    for endpoint in ENDPOINTS:
        method, path = endpoint.split(" ")
        if method == "WS":
            assert path in document["x-websockets"]
        elif path != "/":  # the page is for people
            assert endpoint.partition("{")[0] in told


def test_every_operation_says_what_it_is(document):
    found = operations(document)
    ids = [operation["operationId"] for operation in found.values()]
    assert len(set(ids)) == len(ids)
    assert {"createSpeech", "listVoices", "getHealth", "getMetrics"} <= set(ids)
    tags = {tag["name"] for tag in document["tags"]}
    for name, operation in found.items():
        assert operation["description"], name
        assert set(operation["tags"]) <= tags, name
        assert operation["tags"], name


def test_every_field_has_a_description(document):
    schemas = document["components"]["schemas"]
    for name in ("SpeechBody", "BatchBody", "LanguagesBody", "VapiBody"):
        for field, schema in schemas[name]["properties"].items():
            assert schema.get("description"), f"{name}.{field}"
    assert set(schemas["SpeechBody"]["properties"]) == set(SpeechBody.model_fields)


def test_limits_are_exact_and_the_servers_own():
    fields = document_of(max_input_chars="77")["components"]["schemas"]["SpeechBody"]["properties"]
    assert fields["input"]["maxLength"] == 77
    assert (fields["seed"]["minimum"], fields["seed"]["maximum"]) == (-(2**63), 2**63 - 1)
    assert fields["speed"]["type"] == ["number", "null"]
    assert (fields["speed"]["minimum"], fields["speed"]["maximum"]) == (0.25, 4)
    assert None in fields["response_format"]["enum"]


def test_every_error_is_the_envelope(document):
    for name, operation in operations(document).items():
        responses = operation["responses"]
        assert "422" not in responses, name
        assert {"200", "403", "500"} <= set(responses), name
        for status, response in responses.items():
            assert "X-Request-ID" in response["headers"], (name, status)
            if status == "200" or (name, status) in (("GET /health", "503"), ("GET /ready", "503")):
                continue
            (content,) = response["content"].values()
            assert content["schema"]["$ref"].endswith("/Error"), (name, status)
            assert ("Retry-After" in response["headers"]) == (status in ("429", "503"))
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_speech_comes_in_every_type(document):
    good = operations(document)["POST /v1/audio/speech"]["responses"]["200"]
    assert set(good["content"]) == {
        "audio/mpeg", "audio/ogg", "audio/aac", "audio/flac", "audio/wav", "audio/pcm",
        "text/event-stream",
    }  # fmt: skip
    assert {"X-Seed", "X-Voice", "X-Language", "X-Finish-Reason"} <= set(good["headers"])


def test_keys_are_asked_for_as_the_guard_does():
    open_, keyed = document_of(), document_of(api_key="k")
    closed = document_of(api_key="k", protect_listings=True)
    for document, speech, listing in (
        (open_, [{}, {"key": []}], []),
        (keyed, [{"key": []}], []),
        (closed, [{"key": []}], [{"key": []}]),
    ):
        found = operations(document)
        assert found["POST /v1/audio/speech"]["security"] == speech
        assert found["GET /v1/audio/voices"]["security"] == listing
        assert found["GET /health"]["security"] == []
        assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
