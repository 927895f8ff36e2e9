"""What bounds the speed of our own library: the machine's limits and what a frame costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from phonate.engine.qwen.call import OK
from phonate.engine.qwen.library import Library, foreign

FRAME_S = 0.08


@dataclass(frozen=True, slots=True)
class MachineLimits:
    threads: int
    read_bytes_s: float
    mul_adds_s: float


@dataclass(frozen=True, slots=True)
class FrameCost:
    talker_bytes: float
    predictor_bytes: float
    codec_bytes: float
    """Once per chunk, whatever its length."""
    codec_mul_adds: float


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Milliseconds per frame. The codec runs beside the others: the sum may exceed the whole."""

    talker_ms: float
    predictor_ms: float
    codec_ms: float


def measure_machine(library: Library, threads: int = 0) -> MachineLimits | None:
    """Takes half a second. None where the library cannot tell."""
    if "qt_measure_machine" not in library.symbols:
        return None
    found = foreign().new("qt_machine *")
    if library.lib.qt_measure_machine(threads, found) != OK:
        return None
    return MachineLimits(found.n_threads, found.read_bytes_s, found.mul_adds_s)


def frame_cost(library: Library, context: Any) -> FrameCost | None:
    """None where the library cannot tell."""
    if "qt_frame_costs" not in library.symbols:
        return None
    found = foreign().new("qt_frame_cost *")
    if library.lib.qt_frame_costs(context, found) != OK:
        return None
    return FrameCost(
        found.talker_bytes, found.predictor_bytes, found.codec_bytes, found.codec_mul_adds
    )


def stage_times(library: Library) -> StageTimes | None:
    """Of the last synthesis on this thread. None where the library cannot tell."""
    if not library.traits.reports_results:
        return None
    result = library.lib.qt_last_result()
    frames = max(1, result.n_frames)
    return StageTimes(
        result.talker_ms / frames, result.predictor_ms / frames, result.codec_ms / frames
    )


def bound(cost: FrameCost, limits: MachineLimits, chunk_frames: int = 4) -> float:
    """The real-time factor nothing can beat on this machine: reading the weights once, or the
    codec's multiply-adds, whichever takes longer, with nothing waiting for anything else."""
    read = cost.talker_bytes + cost.predictor_bytes + cost.codec_bytes / chunk_frames
    return max(read / limits.read_bytes_s, cost.codec_mul_adds / limits.mul_adds_s) / FRAME_S
