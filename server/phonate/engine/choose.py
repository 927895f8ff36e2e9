"""From settings to an engine: which one runs, and why."""

from __future__ import annotations

from phonate.engine.base import Engine
from phonate.engine.models.progress import Progress, silent
from phonate.engine.models.resolve import ResolvedModel
from phonate.settings import Settings


def create_engine(settings: Settings, progress: Progress = silent) -> Engine:
    """The Qwen3-TTS engine when a model is named, else the built-in voice; in a process of its own
    with --isolate-engine. Downloads a named model that is not there yet. Raises SetupError when
    what is asked for cannot run here."""
    model = _find_model(settings, progress) if wants_model(settings) else None
    if settings.isolate_engine:
        return _isolated(settings, model)
    return build_engine(settings, model)


def wants_model(settings: Settings) -> bool:
    return any((settings.model, settings.talker, settings.codec))


def build_engine(settings: Settings, model: ResolvedModel | None) -> Engine:
    """The engine itself, in this process."""
    if model is not None:
        return _qwen(settings, model)
    from phonate.engine.builtin.engine import BuiltinEngine

    return BuiltinEngine(max_batch=settings.max_batch)


def _isolated(settings: Settings, model: ResolvedModel | None) -> Engine:
    from phonate.engine.isolated.engine import IsolatedEngine

    if model is not None:
        return IsolatedEngine(settings, model)
    from phonate.engine.builtin.engine import unspoken

    # Asked on the server's loop, which cannot wait for a process; and text alone decides it.
    return IsolatedEngine(settings, unspoken=unspoken)


def _find_model(settings: Settings, progress: Progress) -> ResolvedModel:
    from phonate.engine.models.hub import HubOptions
    from phonate.engine.models.resolve import resolve
    from phonate.engine.qwen.library_search import candidates, find_library

    # Before any download: a machine without a library has no use for the files. An isolated
    # engine's library is not loaded here as long as there is one.
    if not settings.isolate_engine or not (settings.library or list(candidates())):
        find_library(settings.library, settings.device)
    return resolve(
        settings.model,
        talker=settings.talker,
        codec=settings.codec,
        quant=settings.quant,
        hub=HubOptions(settings.model_cache_dir, settings.local_files_only),
        progress=progress,
    )


def _qwen(settings: Settings, model: ResolvedModel) -> Engine:
    from phonate.engine.models.onset_profile import profile_for
    from phonate.engine.qwen.context import ContextOptions
    from phonate.engine.qwen.engine import OnsetSilence, QwenEngine
    from phonate.engine.qwen.library_search import find_library

    onset = None
    if settings.onset_silence_profile is not None:
        profile = profile_for(settings.onset_silence_profile, model.files)
        onset = OnsetSilence(profile.ids, profile.n_frames) if profile else None
    options = ContextOptions(
        max_batch=settings.max_batch,
        threads=settings.cpu_threads,
        codec_threads=settings.cpu_codec_threads,
        affinity=settings.cpu_affinity,
        codec_affinity=settings.cpu_codec_affinity,
        stream_frames=settings.cpu_stream_frames,
        precision=settings.precision,
        flash_attention=settings.fa,
        clamp_fp16=settings.clamp_fp16,
        codec_chunk_sec=settings.codec_chunk_sec,
    )
    return QwenEngine(
        model.files.talker,
        model.files.codec,
        library=find_library(settings.library, settings.device),
        options=options,
        model_id=model.id,
        onset_silence=onset,
    )
