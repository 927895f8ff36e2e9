"""GET /metrics: Prometheus text. Labels come out of small fixed sets, never from clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fastapi import APIRouter
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from phonate import __version__
from phonate.api.state import AppState
from phonate.api.traffic import Traffic
from phonate.errors import NotFound
from phonate.speech.observer import Observer, Report

router = APIRouter(tags=["health"])

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_CAUSES = frozenset(
    {
        "client_gone", "shutdown", "timeout", "pause_timeout", "send_timeout", "yielded",
        "session_closed", "session_failed", "cancelled", "skipped", "server_busy",
        "not_ready", "engine_failure", "internal_error", "too_large",
        "unsupported_language", "unsupported_operation",
        "voice_not_found",
    }
)  # fmt: skip

_LATENCY = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 120)
_FACTOR = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10)

Gauges = Callable[[], dict[str, float]]


class Metrics(Observer):
    """One registry per app. `gauges` is asked at every scrape for what is true right now."""

    def __init__(self, gauges: Gauges, engine: dict[str, str], traffic: Traffic) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self._utterances = Counter(
            "phonate_utterances", "Utterances that ended, by outcome.", ["outcome"],
            registry=registry,
        )  # fmt: skip
        self._causes = Counter(
            "phonate_utterances_cut", "Cancelled, failed and refused ones, by cause.",
            ["outcome", "cause"], registry=registry,
        )  # fmt: skip
        self._queued = Histogram(
            "phonate_queue_seconds", "Wait for the engine's slot.", buckets=_LATENCY,
            registry=registry,
        )  # fmt: skip
        self._first_audio = Histogram(
            "phonate_first_audio_seconds", "Admission to the first audible audio.",
            buckets=_LATENCY, registry=registry,
        )  # fmt: skip
        self._onset = Histogram(
            "phonate_audible_onset_seconds",
            "Admission to the first sample that can be heard, for a client that plays at once.",
            buckets=_LATENCY, registry=registry,
        )  # fmt: skip
        self._stalls = Counter(
            "phonate_engine_stalls", "Engine calls that made no progress for --stall-timeout.",
            registry=registry,
        )  # fmt: skip
        self._factor = Histogram(
            "phonate_real_time_factor", "Seconds of work per second of audio.", buckets=_FACTOR,
            registry=registry,
        )  # fmt: skip
        self._audio = Counter("phonate_audio_seconds", "Audio made.", registry=registry)
        self._frames = Counter("phonate_frames", "Codec frames made.", registry=registry)
        registry.register(_Now(gauges, engine, traffic))

    def stalled(self) -> None:
        self._stalls.inc()

    def ended(self, report: Report) -> None:
        self._utterances.labels(report.outcome).inc()
        if report.cause:
            cause = report.cause if report.cause in _CAUSES else "other"
            self._causes.labels(report.outcome, cause).inc()
        self._queued.observe(report.queued_s)
        if report.first_audio_s is not None:
            self._first_audio.observe(report.first_audio_s)
        if report.onset_s is not None:
            self._onset.observe(report.onset_s)
        if report.audio_s and report.outcome in ("stop", "length"):
            self._factor.observe(report.speaking_s / report.audio_s)
        self._audio.inc(report.audio_s)
        self._frames.inc(report.n_frames)


class _Now(Collector):
    def __init__(self, gauges: Gauges, engine: dict[str, str], traffic: Traffic) -> None:
        self._gauges = gauges
        self._engine = engine
        self._traffic = traffic

    def collect(self) -> Iterator[Metric]:
        for name, value in self._gauges().items():
            yield GaugeMetricFamily(f"phonate_{name}", name.replace("_", " "), value=value)
        yield from self._counted()
        build = InfoMetricFamily("phonate_build", "What runs here.")
        build.add_metric([], {"version": __version__, **self._engine})
        yield build

    def _counted(self) -> Iterator[Metric]:
        traffic = self._traffic
        for name, text, label, counts in (
            ("answers", "HTTP answers, by status.", "status", traffic.answers),
            ("refusals", "What the door or the wire refused or cut, by why.", "why",
             traffic.refused),
            ("sent_bytes", "Bodies and audio frames, by transport.", "transport",
             traffic.sent_bytes),
        ):  # fmt: skip
            family = CounterMetricFamily(f"phonate_{name}", text, labels=[label])
            for key, count in counts.items():
                family.add_metric([str(key)], count)
            yield family


@router.get("/metrics", include_in_schema=False)
async def metrics(state: AppState) -> Response:
    if not state.settings.metrics:
        raise NotFound("Metrics are switched off (--no-metrics).")
    return Response(generate_latest(state.metrics.registry), media_type=CONTENT_TYPE)
