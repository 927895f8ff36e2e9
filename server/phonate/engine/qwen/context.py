"""Loading a model pair into a native context, with the options that the library at hand has."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from phonate.engine.qwen.library import Library, foreign
from phonate.engine.qwen.model import QwenModel
from phonate.engine.qwen.native_log import NativeLog
from phonate.errors import SetupError

PRECISIONS = {"exact": 0, "fast": 1}
MAX_THREADS = 256
AUTO_THREADS_MAX = 8
DEFAULT_CONTEXT = 8192


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """How to load. None and 0 leave a choice to the library; what the library at hand has no
    switch for is refused by the flag's name."""

    max_batch: int = 1
    threads: int | None = None
    """None: the physical cores this process may use, at most 8."""
    codec_threads: int = 0
    affinity: int = 0
    """Mask of logical CPUs for the workers."""
    codec_affinity: int = 0
    stream_frames: int = 0
    """Frames in a chunk: 1, 2, 4 on the CPU wheel; the most per chunk on ours."""
    precision: Literal["exact", "fast"] = "exact"
    flash_attention: bool = True
    clamp_fp16: bool | None = None
    """None: on the GPU only."""
    codec_chunk_sec: float = 24.0
    context_rows: int = DEFAULT_CONTEXT
    """Prompt rows + frames of one request, where the library lets one choose."""


def physical_cores() -> int:
    """Cores this process may use; hyper-threads of one core count once."""
    if not hasattr(os, "sched_getaffinity"):
        return max(1, (os.cpu_count() or 1) // 2)
    cores = set()
    for cpu in os.sched_getaffinity(0):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        try:
            cores.add(siblings.read_text(encoding="ascii").strip())
        except OSError:
            cores.add(str(cpu))
    return max(1, len(cores))


def thread_count(options: ContextOptions) -> int:
    return options.threads or min(physical_cores(), AUTO_THREADS_MAX)


def open_context(library: Library, model: QwenModel, options: ContextOptions) -> Any:
    """A qt_context. Raises SetupError with the library's reason."""
    _check(library, model, options)
    ffi, lib = foreign(), library.lib
    params = ffi.new("qt_init_params *")
    lib.qt_init_default_params(params)
    paths = [ffi.new("char[]", os.fsencode(path)) for path in (model.talker, model.codec)]
    params.talker_path, params.codec_path = paths
    params.use_fa = options.flash_attention
    params.clamp_fp16 = (
        library.device == "gpu" if options.clamp_fp16 is None else options.clamp_fp16
    )
    params.max_batch = options.max_batch
    params.codec_chunk_sec = options.codec_chunk_sec
    before = library.last_error()
    library.log.forget_error()
    if library.traits.n_threads_at_init:
        params.talker_kv_size = options.context_rows
        params.n_threads = options.threads or 0
        params.precision = PRECISIONS[options.precision]
        params.stream_frames_max = options.stream_frames
        context = lib.qt_init(params)
    elif "qt_init_cpu" in library.symbols and library.device == "cpu":
        context = _open_on_cpu(library, params, options)
    else:
        context = lib.qt_init(params)
    if context == ffi.NULL:
        raise SetupError(
            f"{library.path.name} could not load {model.talker} with {model.codec}: "
            f"{_why(library.log, library.last_error(), before)}"
        )
    return context


def _open_on_cpu(library: Library, params: Any, options: ContextOptions) -> Any:
    threads = thread_count(options)
    if not _scheduling(options):
        return library.lib.qt_init_cpu(params, threads)
    cpu = foreign().new("qt_cpu_options *")
    cpu.version = 1
    cpu.codec_threads = options.codec_threads
    cpu.stream_frames = options.stream_frames
    cpu.worker_mask = options.affinity
    cpu.codec_mask = options.codec_affinity
    return library.lib.qt_init_cpu_ex(params, threads, cpu)


def _scheduling(options: ContextOptions) -> bool:
    return bool(
        options.codec_threads or options.affinity or options.codec_affinity or options.stream_frames
    )


def _why(log: NativeLog, message: str, before: str) -> str:
    logged = log.error_of_call()
    fresh = message if message != before else ""
    return "; ".join(dict.fromkeys(part for part in (fresh, logged) if part)) or (
        "the library gave no reason"
    )


def _check(library: Library, model: QwenModel, options: ContextOptions) -> None:
    """Numbers in range, and nothing asked for that this library has no switch for."""
    traits, symbols = library.traits, library.symbols
    on_cpu_wheel = "qt_init_cpu_ex" in symbols and library.device == "cpu"
    ranges = (
        ("--max-batch", options.max_batch, 1, 64),
        ("--cpu-threads", options.threads if options.threads is not None else 1, 1, MAX_THREADS),
        ("--cpu-codec-threads", options.codec_threads, 0, os.cpu_count() or 1),
        ("--cpu-affinity", options.affinity, 0, (1 << 64) - 1),
        ("--cpu-codec-affinity", options.codec_affinity, 0, (1 << 64) - 1),
        ("--cpu-stream-frames", options.stream_frames, 0, 64),
        ("--codec-chunk-sec", options.codec_chunk_sec, 0.08, 3600),
        ("the context size", options.context_rows, 64, 32768),
    )
    for flag, value, low, high in ranges:
        if isinstance(value, bool) or not low <= value <= high:
            raise SetupError(f"{flag} is {value}; it must be {low} to {high}.")
    missing = (
        ("--cpu-threads", options.threads is not None, traits.n_threads_at_init or on_cpu_wheel),
        ("--cpu-codec-threads", options.codec_threads, on_cpu_wheel),
        ("--cpu-affinity", options.affinity, on_cpu_wheel),
        ("--cpu-codec-affinity", options.codec_affinity, on_cpu_wheel),
        ("--cpu-stream-frames", options.stream_frames, traits.n_threads_at_init or on_cpu_wheel),
        ("--precision fast", options.precision != "exact", traits.n_threads_at_init),
    )
    for flag, wanted, available in missing:
        if wanted and not available:
            raise SetupError(
                f"{flag}: the native library {traits.label} ({library.path.name}) has no such "
                "switch. Leave the option out, or choose another with --library."
            )
    if on_cpu_wheel and options.stream_frames not in (0, 1, 2, 4):
        raise SetupError(f"--cpu-stream-frames is {options.stream_frames}; use 1, 2 or 4.")
    if options.codec_threads and options.max_batch > 1:
        raise SetupError("--cpu-codec-threads needs --max-batch 1: the two exclude each other.")
    if options.codec_affinity and not options.codec_threads:
        raise SetupError("--cpu-codec-affinity needs --cpu-codec-threads.")
    if not traits.any_codec_size and not model.full_size_codec:
        raise SetupError(
            f"{model.codec}: not the size of the released codec, which the native library "
            f"{traits.label} has built in."
        )
