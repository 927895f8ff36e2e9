"""Spans of OpenTelemetry: a request, and in it admission, fragments, the engine and encoding.

Imported only where traces are wanted (`phonate.traces`). A span says who spoke, how, and how long
it took; never what was said. The span of a request continues the caller's trace (`traceparent`).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from phonate import __version__
from phonate.errors import Cancelled, PhonateError
from phonate.speech.observer import Fact, Observer, Report, Stage

QUIET = frozenset({"/health", "/ready", "/metrics"})
"""Asked every few seconds by machines: no spans."""

_PROPAGATOR = TraceContextTextMapPropagator()


class Tracing:
    """One provider per app, and none of the process: tests and embedders have their own."""

    def __init__(self, processor: SpanProcessor) -> None:
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self.tracer = self._provider.get_tracer("phonate", __version__)

    @classmethod
    def to_collector(cls) -> Tracing:
        """OTLP over HTTP, where the OTEL_* variables say; http://localhost:4318 if they do not."""
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return cls(BatchSpanProcessor(OTLPSpanExporter()))

    def observe(self, inner: Observer) -> Observer:
        """An observer that makes spans, and tells `inner` everything else."""
        return _Spans(self.tracer, inner)

    def middleware(self, app: ASGIApp) -> ASGIApp:
        return Middleware(app, self.tracer)

    def close(self, patience_s: float = 5.0) -> None:
        """Send what is left. A collector that does not answer must not hold up the shutdown."""
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(patience_s)


def _resource() -> Resource:
    """OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come first."""
    about = {"service.version": __version__}
    named = "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if not named and not os.environ.get("OTEL_SERVICE_NAME"):
        about["service.name"] = "phonate"
    return Resource.create(about)


class _Spans(Observer):
    def __init__(self, tracer: trace.Tracer, inner: Observer) -> None:
        self._tracer = tracer
        self._inner = inner

    def ended(self, report: Report) -> None:
        self._inner.ended(report)

    def note(self, **facts: Fact) -> None:
        _note(trace.get_current_span(), facts)

    @contextlib.contextmanager
    def stage(self, name: str, **facts: Fact) -> Iterator[Stage]:
        with self._tracer.start_as_current_span(
            name, record_exception=False, set_status_on_exception=False
        ) as span:
            _note(span, facts)
            with _blamed(span):
                yield _SpanStage(span)


class _SpanStage(Stage):
    def __init__(self, span: Span) -> None:
        self._span = span

    def note(self, **facts: Fact) -> None:
        _note(self._span, facts)


def _note(span: Span, facts: dict[str, Fact]) -> None:
    for name, value in facts.items():
        if value is not None:
            span.set_attribute(f"phonate.{name}", value)


@contextlib.contextmanager
def _blamed(span: Span) -> Iterator[None]:
    """An error by its code alone: a message may quote what a client sent."""
    try:
        yield
    except BaseException as error:
        kind = type(error).__name__
        if isinstance(error, PhonateError):
            kind = error.code or error.type
        span.set_attribute("error.type", kind)
        if isinstance(error, Exception) and not isinstance(error, Cancelled):
            span.set_status(Status(StatusCode.ERROR))
        raise


class Middleware:
    """The span of a request or a WebSocket session. Plain ASGI, inside `RequestContext`, which
    gives the id."""

    def __init__(self, app: ASGIApp, tracer: trace.Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or scope["path"] in QUIET:
            await self._app(scope, receive, send)
            return
        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in _trail(scope)}
        with self._tracer.start_as_current_span(
            scope.get("method", "WS"),
            context=_PROPAGATOR.extract(carrier),
            kind=SpanKind.SERVER,
            attributes=_about(scope),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:

            async def send_and_note(message: Message) -> None:
                if message["type"] in ("http.response.start", "websocket.http.response.start"):
                    _note_status(span, message["status"])
                await send(message)

            try:
                with _blamed(span):
                    await self._app(scope, receive, send_and_note)
            finally:
                _name(span, scope)


def _trail(scope: Scope) -> Iterator[tuple[bytes, bytes]]:
    return (pair for pair in scope["headers"] if pair[0] in (b"traceparent", b"tracestate"))


def _about(scope: Scope) -> dict[str, str]:
    """Not the path, which may hold the name of a voice; the route comes later."""
    about = {"phonate.request_id": scope["state"]["request_id"]}
    if "method" in scope:
        about["http.request.method"] = scope["method"]
    return about


def _note_status(span: Span, status: int) -> None:
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_status(Status(StatusCode.ERROR))


def _name(span: Span, scope: Scope) -> None:
    """By the route, which is known once it was found."""
    route = getattr(scope.get("route"), "path", None)
    if route is not None:
        span.set_attribute("http.route", route)
        span.update_name(f"{scope.get('method', 'WS')} {route}")
