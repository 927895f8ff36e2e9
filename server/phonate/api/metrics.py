"""GET /metrics: Prometheus text. Labels come out of small fixed sets, never from clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fastapi import APIRouter
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from starlette.responses import Response

from phonate import __version__
from phonate.api.openapi import answers
from phonate.api.state import AppState
from phonate.api.traffic import Traffic
from phonate.errors import NotFound
from phonate.speech.admission import Lane
from phonate.speech.observer import Observer, Report

router = APIRouter(tags=["health"])

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_CAUSES = frozenset(
    {
        "client_gone", "shutdown", "timeout", "pause_timeout", "send_timeout", "yielded",
        "session_closed", "session_failed", "cancelled", "skipped", "server_busy", "not_ready",
        "engine_failure", "engine_died", "internal_error", "too_large", "unsupported_language",
        "unsupported_operation", "voice_not_found",
    }
)  # fmt: skip

_LATENCY = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 120)
_FACTOR = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10)

Gauges = Callable[[], dict[str, float]]
Restarts = Callable[[], dict[str, int]]
Lanes = Callable[[], Sequence[Lane]]


class Metrics(Observer):
    """One registry per app. At every scrape `gauges` and `lanes` are asked for what is true right
    now, and `restarts` how often the engine's process was lost, by cause: {} where it has none."""

    def __init__(
        self,
        gauges: Gauges,
        lanes: Lanes,
        engine: dict[str, str],
        restarts: Restarts,
        traffic: Traffic,
    ) -> None:
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
        registry.register(_Now(gauges, lanes, engine, restarts, traffic))

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
    def __init__(
        self,
        gauges: Gauges,
        lanes: Lanes,
        engine: dict[str, str],
        restarts: Restarts,
        traffic: Traffic,
    ) -> None:
        self._gauges = gauges
        self._lanes = lanes
        self._engine = engine
        self._restarts = restarts
        self._traffic = traffic

    def collect(self) -> Iterator[Metric]:
        for name, value in self._gauges().items():
            yield GaugeMetricFamily(f"phonate_{name}", name.replace("_", " "), value=value)
        if by_cause := self._restarts():
            restarts = CounterMetricFamily(
                "phonate_engine_restarts", "Lost engine processes, by cause.", labels=["cause"]
            )
            for cause, n in by_cause.items():
                restarts.add_metric([cause], n)
            yield restarts
        yield from self._of_lanes()
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

    def _of_lanes(self) -> Iterator[Metric]:
        """--max-batch says how many there are: a small fixed set of labels."""
        busy = GaugeMetricFamily("phonate_lane_busy", "1: works now.", labels=["lane"])
        uses = CounterMetricFamily("phonate_lane_uses", "Times it was held.", labels=["lane"])
        held = CounterMetricFamily(
            "phonate_lane_held_seconds", "Time it was held, of holds that are over.",
            labels=["lane"],
        )  # fmt: skip
        for number, lane in enumerate(self._lanes()):
            busy.add_metric([str(number)], lane.busy)
            uses.add_metric([str(number)], lane.n_holds)
            held.add_metric([str(number)], lane.held_s)
        yield from (busy, uses, held)


@router.get(
    "/metrics",
    response_class=Response,
    responses=answers(None, 404, content={"text/plain": {"schema": {"type": "string"}}}),
)
async def get_metrics(state: AppState) -> Response:
    """Prometheus text; `--metrics-key` opens it too. 404 with `--no-metrics`."""
    if not state.settings.metrics:
        raise NotFound("Metrics are switched off (--no-metrics).")
    return Response(generate_latest(state.metrics.registry), media_type=CONTENT_TYPE)
