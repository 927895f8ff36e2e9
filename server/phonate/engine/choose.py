"""From settings to an engine: which one runs, and why."""

from __future__ import annotations

from phonate.engine.base import Engine
from phonate.engine.models.progress import Progress, silent
from phonate.settings import Settings


def create_engine(settings: Settings, progress: Progress = silent) -> Engine:
    """The Qwen3-TTS engine when a model is named, else the built-in voice. Downloads a named model
    that is not there yet. Raises SetupError when what is asked for cannot run here."""
    if wants_model(settings):
        return _qwen(settings, progress)
    from phonate.engine.builtin.engine import BuiltinEngine

    return BuiltinEngine(max_batch=settings.max_batch)


def wants_model(settings: Settings) -> bool:
    return any((settings.model, settings.talker, settings.codec))


def _qwen(settings: Settings, progress: Progress) -> Engine:
    from phonate.engine.models.hub import HubOptions
    from phonate.engine.models.onset_profile import profile_for
    from phonate.engine.models.resolve import resolve
    from phonate.engine.qwen.context import ContextOptions
    from phonate.engine.qwen.engine import OnsetSilence, QwenEngine
    from phonate.engine.qwen.library_search import find_library

    # Before any download: a machine without a library has no use for the files.
    library = find_library(settings.library, settings.device)
    found = resolve(
        settings.model,
        talker=settings.talker,
        codec=settings.codec,
        quant=settings.quant,
        hub=HubOptions(settings.model_cache_dir, settings.local_files_only),
        progress=progress,
    )
    onset = None
    if settings.onset_silence_profile is not None:
        profile = profile_for(settings.onset_silence_profile, found.files)
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
        found.files.talker,
        found.files.codec,
        library=library,
        options=options,
        model_id=found.id,
        onset_silence=onset,
    )
