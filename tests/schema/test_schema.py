"""/openapi.json is true: what it promises is answered, and what it rules out is refused.

`schemathesis` makes requests out of the schema, good and bad ones, and holds every answer against
it. A route, field, status, header or type that the schema does not know is a failure too.

    make schema                                     a few dozen requests a route
    make schema ARGS="--hypothesis-profile long"    hundreds
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from schemathesis.specs.openapi import checks
from support import Running, running

from phonate import settings
from phonate.app import create_app
from phonate.engine.scripted import DEFAULT_INFO, Emit, ScriptedEngine, duration_of, frequency_of

KEY = "schema-key"
INFO = dataclasses.replace(
    DEFAULT_INFO, can_clone=True, can_icl=True, can_instruct=True, takes_sampling=True,
    embedding_dim=2,
)  # fmt: skip


def script(request: Any) -> list[Emit]:
    """The default tone, but never long: texts here have thousands of characters."""
    return [Emit.tone(min(1.0, duration_of(request.text)), frequency_of(request.text))]


BEYOND_A_SCHEMA = checks.positive_data_acceptance
"""A request may fit the schema and still name a voice that is not there."""

OPTIONS = {"api_key": KEY, "max_batch": "4", "max_queued_requests": "1000"}


def _document() -> dict[str, Any]:
    """As the server has it, but answers may have no further fields. A client must bear those;
    here they are a hole in the schema."""
    with tempfile.TemporaryDirectory() as voices:
        effective = settings.load({**OPTIONS, "voice_dir": voices}, {}).settings
        app = create_app(effective, ScriptedEngine(info=INFO))
        document: dict[str, Any] = json.loads(json.dumps(app.openapi()))
    for name, shape in document["components"]["schemas"].items():
        if not name.endswith("Body") and "properties" in shape:
            shape.setdefault("additionalProperties", False)
    return document


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(ScriptedEngine(script, INFO, remember=False), **OPTIONS) as server:
        yield server


schema = schemathesis.openapi.from_dict(_document())
# The test itself brings the key; a request made to lack it would have it all the same.
schema.config.generation.update(with_security_parameters=False)


@schema.parametrize()
def test_every_answer_is_as_the_schema_says(case: Any, server: Running) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    case.call_and_validate(
        base_url=server.address, headers=headers, timeout=30, excluded_checks=[BEYOND_A_SCHEMA]
    )
