"""Inside a replica: an engine, the app, and what Ray needs around it."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from phonate import logs
from phonate.api.state import State
from phonate.api.traffic import OVER_CAPACITY
from phonate.app import create_app
from phonate.engine.choose import create_engine
from phonate.errors import PhonateError
from phonate.serve import SWITCH_INTERVAL_S
from phonate.settings import Settings

log = logging.getLogger("phonate.ray")

LOOK_EVERY_S = 0.5
METRICS_EVERY_S = 5.0


class Unhealthy(PhonateError):
    """/health would say 503."""


def make_replica(settings: Settings) -> type:
    """The class that Ray deploys."""
    from ray import serve

    def build() -> ASGIApp:
        logs.set_up(settings.log_level, settings.log_format)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        return OnRay(create_app(settings, create_engine(settings)), settings.max_connections)

    class Phonate:
        app: OnRay
        """Put there by Ray: what `build` made."""

        async def check_health(self) -> None:
            """Raises when /health would say 503: Ray then replaces the replica."""
            self.app.check_health()

    made: type = serve.ingress(build)(Phonate)
    return made


class OnRay:
    """Outermost in a replica. Plain ASGI."""

    def __init__(self, app: Any, max_connections: int) -> None:
        self._app = app
        self._max_connections = max_connections
        self._ongoing = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
            return
        self._ongoing += 1
        try:
            # There are no connections here. What is ongoing is counted in their place.
            if self._ongoing > self._max_connections:
                scope.setdefault("state", {})[OVER_CAPACITY] = True
            await self._app(scope, receive, _for_ray(scope, send))
        finally:
            self._ongoing -= 1

    def check_health(self) -> None:
        if not self._state.service.health().ok:
            raise Unhealthy("the engine makes no progress, or is gone")

    @property
    def _state(self) -> State:
        state: State = self._app.state.phonate
        return state

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        tasks = [asyncio.ensure_future(work) for work in (self._report(), self._say_goodbye())]
        try:
            await self._app(scope, receive, send)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _report(self) -> None:
        export = Export()
        while True:
            await asyncio.sleep(METRICS_EVERY_S)
            if not hasattr(self._app.state, "phonate"):
                continue  # It is still warming up.
            try:
                export.take(self._state.metrics.registry)
            except Exception:
                log.exception("Ray does not take the metrics")

    async def _say_goodbye(self) -> None:
        """Ray sends a leaving replica nothing new and waits for what it has. A session could go on
        for hours: it is told, speaks what it has, and is closed with 1012."""
        while not is_leaving():  # noqa: ASYNC110 - nothing there to wait for
            await asyncio.sleep(LOOK_EVERY_S)
        state = self._state
        patience_s = state.settings.shutdown_timeout
        log.info("leaving: %d sessions are open, %g s to finish", len(state.sessions), patience_s)
        for session in list(state.sessions):
            session.drain(patience_s)
        await asyncio.sleep(patience_s)
        for session in list(state.sessions):
            session.give_up()
        state.service.cancel_all("shutdown")


def _for_ray(scope: Scope, send: Send) -> Send:
    """Ray's proxy gives a request without an id one, and puts it on the answer, where the app's
    would stand a second time. On a WebSocket it does not."""
    if not any(name == b"x-request-id" for name, _ in scope["headers"]):
        return send

    async def send_without_id(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = message.get("headers", [])
            message["headers"] = [pair for pair in headers if pair[0].lower() != b"x-request-id"]
        await send(message)

    return send_without_id


def is_leaving() -> bool:
    """Whether Ray is taking this replica down. It tells nobody, so this looks into its own object,
    carefully: where that looks different one day, sessions are cut at the end instead of told."""
    import ray

    actors = getattr(getattr(ray.get_runtime_context(), "worker", None), "actors", None) or {}
    impls = [getattr(actor, "_replica_impl", None) for actor in list(actors.values())]
    return any(getattr(impl, "_shutting_down", False) is True for impl in impls)


class Export:
    """Every sample of /metrics becomes a gauge of Ray's with the same name and labels: Ray adds
    `deployment` and `replica`, and each machine's agent serves them. Gauges, for Ray's counters
    and histograms cannot take over a state; Prometheus calculates with them all the same."""

    def __init__(self) -> None:
        self._gauges: dict[str, Any] = {}

    def take(self, registry: CollectorRegistry) -> None:
        from ray.serve.metrics import Gauge

        for family in registry.collect():
            for sample in family.samples:
                if sample.name.endswith("_created"):
                    continue
                gauge = self._gauges.get(sample.name)
                if gauge is None:
                    keys: Any = tuple(sample.labels)
                    gauge = Gauge(sample.name, description=family.documentation, tag_keys=keys)
                    self._gauges[sample.name] = gauge
                gauge.set(sample.value, tags=dict(sample.labels))
