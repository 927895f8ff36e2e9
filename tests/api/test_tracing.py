"""Spans as a collector would get them, from the whole app, with the exporter that keeps them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from stream_client import session
from support import Running, running

from phonate.api.tracing import Tracing
from phonate.engine.scripted import Emit, Fail, Hang, ScriptedEngine
from phonate.errors import EngineFailure

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
SECRET = "My secret is the word marmalade."


@contextlib.contextmanager
def traced(engine: ScriptedEngine) -> Iterator[tuple[Running, InMemorySpanExporter]]:
    kept = InMemorySpanExporter()
    with running(engine, tracing=Tracing(SimpleSpanProcessor(kept))) as server:
        yield server, kept


def ask(server: Running, text: str, **body: Any) -> httpx.Response:
    headers = body.pop("headers", {})
    body = {"input": text, "response_format": "pcm", **body}
    return httpx.post(f"{server.address}/v1/audio/speech", json=body, headers=headers)


def spans_of(kept: InMemorySpanExporter, n: int) -> dict[str, list[ReadableSpan]]:
    """By name, once `n` have ended: a span of a request ends after its last byte has come."""
    until = time.monotonic() + 5
    while len(kept.get_finished_spans()) < n and time.monotonic() < until:
        time.sleep(0.005)
    found: dict[str, list[ReadableSpan]] = {}
    for span in kept.get_finished_spans():
        found.setdefault(span.name, []).append(span)
    return found


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


@pytest.mark.parametrize("stream", [None, False])
def test_a_request_and_its_stages(stream):
    with traced(ScriptedEngine()) as (server, kept):
        answer = ask(
            server, SECRET, stream=stream, response_format="mp3", voice="ton",
            headers={"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "me.1"},
        )  # fmt: skip
        assert answer.status_code == 200
        found = spans_of(kept, 5)
    root = found["POST /v1/audio/speech"][0]
    assert sorted(found) == [
        "POST /v1/audio/speech", "admission", "encode", "engine", "fragment"
    ]  # fmt: skip
    assert f"{root.context.trace_id:032x}" == TRACE
    assert f"{parent_of(root):016x}" == PARENT
    assert root.kind is SpanKind.SERVER
    assert root.attributes["phonate.request_id"] == "me.1"
    assert root.attributes["phonate.voice"] == "ton"
    assert root.attributes["phonate.language"]
    assert root.attributes["phonate.format"] == "mp3"
    assert root.attributes["http.response.status_code"] == 200
    for name in ("admission", "fragment", "encode"):
        assert parent_of(found[name][0]) == root.context.span_id
    engine = found["engine"][0]
    assert parent_of(engine) == found["fragment"][0].context.span_id
    assert engine.attributes["phonate.finish_reason"] == "stop"
    assert engine.attributes["phonate.frames"] > 10
    assert {span.context.trace_id for spans in found.values() for span in spans} == {
        root.context.trace_id
    }


def test_no_span_holds_what_a_client_wrote():
    engine = ScriptedEngine({SECRET: [Fail(EngineFailure(SECRET))]})
    with traced(engine) as (server, kept):
        ask(server, SECRET)
        ask(server, "x", voice=SECRET)
        httpx.get(f"{server.address}/v1/audio/voices/{SECRET}")
        httpx.get(f"{server.address}/{SECRET}")
        found = spans_of(kept, 7)
        told = "".join(span.to_json() for spans in found.values() for span in spans)
    assert "marmalade" not in told


def test_failures_are_marked_by_their_code():
    engine = ScriptedEngine({"bad": [Fail(EngineFailure("boom"))], "bug": [Fail(KeyError("x"))]})
    with traced(engine) as (server, kept):
        for text, status, code in (("bad", 502, "engine_failure"), ("bug", 500, "KeyError")):
            kept.clear()
            assert ask(server, text).status_code == status
            found = spans_of(kept, 4)
            engine_span = found["engine"][0]
            assert engine_span.status.status_code is StatusCode.ERROR
            assert engine_span.attributes["error.type"] == code
            root = found["POST /v1/audio/speech"][0]
            assert root.status.status_code is StatusCode.ERROR
            assert root.attributes["http.response.status_code"] == status


def test_the_wait_for_others_is_in_the_admission():
    go = threading.Event()
    engine = ScriptedEngine({"first": [Hang(go), Emit.tone(0.5)]})
    with traced(engine) as (server, kept), ThreadPoolExecutor(2) as clients:
        clients.submit(ask, server, "first")
        assert engine.wait_for_calls(1)
        second = clients.submit(ask, server, "second")
        while not server.service.admission.queued:
            time.sleep(0.005)
        time.sleep(0.1)
        go.set()
        assert second.result().status_code == 200
        found = spans_of(kept, 10)
    waits = sorted((span.end_time - span.start_time) / 1e9 for span in found["admission"])
    assert waits[0] < 0.05
    assert waits[1] > 0.09


def test_machines_that_look_every_second_leave_no_spans():
    with traced(ScriptedEngine()) as (server, kept):
        for path in ("/health", "/ready", "/metrics"):
            httpx.get(server.address + path)
        httpx.get(f"{server.address}/v1/models/nothing")
        found = spans_of(kept, 1)
    assert list(found) == ["GET /v1/models/{model_id:path}"]


async def test_a_session_is_one_trace():
    with traced(ScriptedEngine()) as (server, kept):
        async with session(server, config={"voice": "ton"}) as client:
            await client.send("text", text=f"{SECRET} And another one. ")
            await client.send("end")
            await client.rest()
        found = spans_of(kept, 7)
    root = found["WS /v1/audio/speech-stream"][0]
    assert root.attributes["phonate.voice"] == "ton"
    assert len(found["engine"]) == len(found["fragment"]) == len(found["admission"]) == 2
    assert {s.context.trace_id for spans in found.values() for s in spans} == {
        root.context.trace_id
    }


def test_nothing_of_it_is_imported_when_there_are_no_traces():
    code = (
        "import sys, tempfile\n"
        "from phonate import settings\n"
        "from phonate.app import create_app\n"
        "from phonate.engine.scripted import ScriptedEngine\n"
        "create_app(settings.load({'voice_dir': tempfile.mkdtemp()}, {}).settings,"
        " ScriptedEngine())\n"
        "found = [m for m in sys.modules if m.startswith('opentelemetry.sdk')"
        " or m == 'phonate.api.tracing']\n"
        "sys.exit(str(found) if found else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
