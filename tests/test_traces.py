import gzip
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from phonate import settings, traces
from phonate.errors import SetupError
from phonate.traces import are_wanted, open_tracing

GZIP = b"\x1f\x8b"


def of(**options):
    return settings.load(options, {}).settings


@pytest.mark.parametrize(
    ("flag", "environ", "wanted"),
    [
        ("auto", {}, False),
        ("auto", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ("auto", {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ("auto", {"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ("auto", {"OTEL_TRACES_EXPORTER": "console, otlp"}, True),
        ("auto", {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "x"}, False),
        ("auto", {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "x"}, False),
        ("off", {"OTEL_EXPORTER_OTLP_ENDPOINT": "x"}, False),
        ("on", {}, True),
    ],
)
def test_who_asks_for_traces(flag, environ, wanted):
    assert are_wanted(of(traces=flag), environ) is wanted


def test_asked_for_by_flag_and_missing_is_refused_with_the_command(monkeypatch):
    monkeypatch.setattr(traces, "are_installed", lambda: False)
    with pytest.raises(SetupError, match=r"--traces on: .*pip install 'phonate\[otel\]'"):
        open_tracing(of(traces="on"), {})


def test_asked_for_by_the_environment_and_missing_is_a_warning(monkeypatch, caplog):
    monkeypatch.setattr(traces, "are_installed", lambda: False)
    assert open_tracing(of(), {"OTEL_TRACES_EXPORTER": "otlp"}) is None
    assert "phonate[otel]" in caplog.text


def test_a_collector_gets_what_the_environment_says(monkeypatch):
    came = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            came.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        tracing = open_tracing(of())
        assert tracing is not None
        with tracing.tracer.start_as_current_span("found"):
            pass
        tracing.close()
        server.shutdown()
    ((path, body),) = came
    assert path == "/v1/traces"
    sent = ExportTraceServiceRequest.FromString(gzip.decompress(body) if body[:2] == GZIP else body)
    (resource,) = sent.resource_spans
    about = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
    assert about["service.name"] == "phonate"
    assert resource.scope_spans[0].spans[0].name == "found"


def test_a_collector_that_is_not_there_does_not_hold_up_the_end(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    tracing = open_tracing(of(traces="on"))
    assert tracing is not None
    with tracing.tracer.start_as_current_span("lost"):
        pass
    tracing.close(patience_s=0.2)
