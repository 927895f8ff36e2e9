"""Facts about Qwen3-TTS on this machine, for `phonate doctor`: what is there, and does it speak.

Nothing raises: what fails is a fact as well, with the reason. The order is the order of a person's
questions; a later one is only asked when the earlier ones went well.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from phonate.engine.base import CancelToken, SynthesisRequest
from phonate.engine.qwen.context import ContextOptions, physical_cores
from phonate.engine.qwen.engine import WARM_UP_INSTRUCTIONS, QwenEngine
from phonate.engine.qwen.library import Library
from phonate.engine.qwen.library_search import candidates, find_library
from phonate.engine.qwen.model import QwenModel, read_model
from phonate.errors import PhonateError

TRIAL_TEXT = "Hello."
TRIAL_FRAMES = 2


@dataclass(frozen=True, slots=True)
class Fact:
    name: str
    value: str
    ok: bool = True


def qwen_facts(
    *,
    wanted_library: str | None = None,
    device: str = "auto",
    talker: Path | None = None,
    codec: Path | None = None,
    options: ContextOptions | None = None,
) -> list[Fact]:
    """Library, ABI, device and build; with a model, its facts and a trial of two frames."""
    facts = [
        Fact("physical cores", str(physical_cores())),
        Fact("installed libraries", ", ".join(name for name, _ in candidates()) or "none"),
    ]
    try:
        library = find_library(wanted_library, device)
    except PhonateError as exc:
        return [*facts, Fact("library", exc.message, ok=False)]
    facts += _library_facts(library)
    if talker is None or codec is None:
        return [*facts, Fact("model", "none given")]
    try:
        model = read_model(talker, codec)
    except PhonateError as exc:
        return [*facts, Fact("model", exc.message, ok=False)]
    facts += _model_facts(model)
    try:
        return facts + _trial(library, model, options)
    except PhonateError as exc:
        return [*facts, Fact("trial", exc.message, ok=False)]


def _library_facts(library: Library) -> list[Fact]:
    return [
        Fact("library", str(library.path)),
        Fact("library kind", library.traits.label),
        Fact("library version", library.version),
        Fact("ABI", str(library.abi)),
        Fact("device", library.device),
        Fact("build", library.build_info),
    ]


def _model_facts(model: QwenModel) -> list[Fact]:
    size = (model.talker.stat().st_size + model.codec.stat().st_size) / 1e6
    return [
        Fact("model", f"{model.name} ({model.kind}, {model.quantization}, {size:.0f} MB)"),
        Fact("talker", str(model.talker)),
        Fact("codec", str(model.codec)),
        Fact("languages", ", ".join((*model.languages, *model.dialects))),
        Fact("speakers", ", ".join(speaker.id for speaker in model.speakers) or "none"),
    ]


def _trial(library: Library, model: QwenModel, options: ContextOptions | None) -> list[Fact]:
    started = time.monotonic()
    engine = QwenEngine(model.talker, model.codec, library=library, options=options)
    loaded = time.monotonic()
    try:
        request = SynthesisRequest(
            text=TRIAL_TEXT,
            instructions=WARM_UP_INSTRUCTIONS if engine.info.needs_instructions else None,
            seed=1,
            max_new_tokens=TRIAL_FRAMES,
        )
        result = engine.synthesize(request, lambda _samples: True, CancelToken())
    finally:
        engine.close()
    spoken = time.monotonic()
    return [
        Fact("load", f"{loaded - started:.2f} s"),
        Fact("trial", f"{result.n_frames} frames in {spoken - loaded:.2f} s"),
    ]
