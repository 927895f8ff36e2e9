"""Whether there are traces, before anything of OpenTelemetry is imported.

`--traces on`, or the environment that OpenTelemetry has for it, switches them on; everything else
about them (endpoint, headers, sampler, resource) is read from that environment by its own library.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from phonate.errors import SetupError
from phonate.settings import Settings

if TYPE_CHECKING:
    from phonate.api.tracing import Tracing

log = logging.getLogger("phonate")

INSTALL = "pip install 'phonate[otel]'"

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def are_wanted(settings: Settings, environ: Mapping[str, str] = os.environ) -> bool:
    if settings.traces != "auto":
        return settings.traces == "on"
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporters = environ.get("OTEL_TRACES_EXPORTER", "").lower().split(",")
    if exporters != [""]:
        return "otlp" in map(str.strip, exporters)
    return any(environ.get(name) for name in _ENDPOINTS)


def are_installed() -> bool:
    try:
        found = importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http")
    except ModuleNotFoundError:
        return False
    return found is not None and importlib.util.find_spec("opentelemetry.sdk") is not None


def open_tracing(settings: Settings, environ: Mapping[str, str] = os.environ) -> Tracing | None:
    """None when there are to be none. Raises SetupError when --traces asks for what is missing."""
    if not are_wanted(settings, environ):
        return None
    if are_installed():
        from phonate.api.tracing import Tracing

        return Tracing.to_collector()
    if settings.traces == "on":
        raise SetupError(f"--traces on: OpenTelemetry is not installed. {INSTALL}")
    log.warning("The environment asks for traces, but OpenTelemetry is missing: %s", INSTALL)
    return None
