"""`phonate doctor`: what is installed, what would run, what is missing and how to get it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from phonate import __version__, traces
from phonate.engine.base import CancelToken, Samples, SynthesisRequest
from phonate.engine.choose import create_engine, wants_model
from phonate.engine.models.hub import HubOptions
from phonate.engine.models.resolve import resolve
from phonate.engine.qwen.facts import qwen_facts
from phonate.engine.qwen.library_search import find_library
from phonate.errors import PhonateError
from phonate.settings import Settings
from phonate.voices.place import Bucket
from phonate.voices.store import VoiceStore


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `remedy` is a command or a sentence; None when nothing is amiss."""

    what: str
    state: str
    ok: bool = True
    remedy: str | None = None


def doctor(settings: Settings) -> bool:
    """Print the report; True when the server would speak."""
    healthy = True
    for finding in examine(settings):
        mark = "ok" if finding.ok else "!!"
        print(f"[{mark}] {finding.what}: {finding.state}")
        if finding.remedy:
            print(f"     -> {finding.remedy}")
        healthy = healthy and finding.ok
    return healthy


def examine(settings: Settings) -> Iterator[Finding]:
    yield Finding("phonate", f"{__version__} on Python {platform.python_version()}")
    for package, module, purpose in _PACKAGES:
        yield _package(package, module, purpose)
    yield _place(settings)
    yield _traces(settings)
    yield _voices(settings)
    if wants_model(settings):
        yield from _qwen(settings)
    else:
        yield from _native_library(settings)
        yield from _builtin(settings)


def _place(settings: Settings) -> Finding:
    what = "the engine's place"
    if settings.isolate_engine:
        return Finding(what, "a process of its own, started anew when it crashes or hangs")
    return Finding(what, "the server's process; --isolate-engine gives it one of its own")


def _voices(settings: Settings) -> Finding:
    """A folder need not be there yet; a bucket must answer."""
    place = settings.voice_dir
    if not isinstance(place, Bucket) and not place.is_dir():
        return Finding("voices", f"none yet; {place} is made when the server starts")
    try:
        store = VoiceStore(place, read_only=True)
    except PhonateError as error:
        return Finding("voices", f"{place} cannot be used", ok=False, remedy=error.message)
    problems = store.problems()
    remedy = "; ".join(f"{problem.folder}: {problem.reason}" for problem in problems[:3])
    state = f"{len(store.entries())} in {place}, {len(problems)} problems"
    return Finding("voices", state, ok=not problems, remedy=remedy or None)


def _qwen(settings: Settings) -> Iterator[Finding]:
    """Library, ABI, device, model files, and a trial of two frames."""
    try:
        found = resolve(
            settings.model,
            talker=settings.talker,
            codec=settings.codec,
            quant=settings.quant,
            hub=HubOptions(settings.model_cache_dir, local_files_only=True),
        )
    except PhonateError as error:
        yield Finding("model", "not on this machine", ok=False, remedy=error.message)
        return
    facts = qwen_facts(
        wanted_library=settings.library,
        device=settings.device,
        talker=found.files.talker,
        codec=found.files.codec,
    )
    for fact in facts:
        yield Finding(fact.name, fact.value, fact.ok)


def _native_library(settings: Settings) -> Iterator[Finding]:
    """What a model would run on; none is needed for the built-in voice."""
    try:
        library = find_library(settings.library, settings.device)
    except PhonateError as error:
        yield Finding("native library for Qwen3-TTS", "none", remedy=error.message)
        return
    yield Finding(
        "native library for Qwen3-TTS",
        f"{library.traits.label} {library.version}, ABI {library.abi}, {library.device}",
        remedy="`phonate pull 0.6b-base`, then `--model 0.6b-base`: cloned voices, ten languages",
    )


_PACKAGES = (
    ("hibari-tts", "hibari", "the built-in voice"),
    ("av", "av", "audio formats"),
    ("soxr", "soxr", "resampling"),
)


def _package(package: str, module: str, purpose: str) -> Finding:
    if importlib.util.find_spec(module) is None:
        return Finding(
            f"{package} ({purpose})", "missing", ok=False, remedy=f"pip install {package}"
        )
    return Finding(f"{package} ({purpose})", importlib.metadata.version(package))


def _traces(settings: Settings) -> Finding:
    """Nobody needs them, so that their absence is only amiss where they are asked for."""
    wanted, installed = traces.are_wanted(settings), traces.are_installed()
    if not installed:
        return Finding(
            "traces (OpenTelemetry, optional)", "not installed", not wanted, remedy=traces.INSTALL
        )
    state = "on" if wanted else "off; --traces on or OTEL_EXPORTER_OTLP_ENDPOINT switches them on"
    return Finding("traces (OpenTelemetry, optional)", state)


def _builtin(settings: Settings) -> Iterator[Finding]:
    try:
        engine = create_engine(settings)
    except PhonateError as error:
        yield Finding("engine", "does not start", ok=False, remedy=error.message)
        return
    info = engine.info
    yield Finding("engine", f"{info.name}, model {info.model}, on {info.device}")
    for key, value in info.details.items():
        yield Finding(f"engine {key}", value)
    heard: list[Samples] = []

    def listen(samples: Samples) -> bool:
        heard.append(samples)
        return True

    try:
        request = SynthesisRequest("Hello.", speaker=info.default_speaker, max_new_tokens=16)
        engine.synthesize(request, listen, CancelToken())
        seconds = sum(map(len, heard)) / info.sample_rate
        level = float(np.sqrt(np.mean(np.square(np.concatenate(heard))))) if heard else 0.0
        yield Finding("a trial sentence", f"{seconds:.2f} s of audio, level {level:.3f}", level > 0)
    except PhonateError as error:
        yield Finding("a trial sentence", error.message, ok=False)
    finally:
        engine.close()
