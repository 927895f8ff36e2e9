"""The figures of `phonate bench`: medians and percentiles of what the engines answered."""

from __future__ import annotations

import platform
import re
import statistics
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from phonate import __version__
from phonate.engine.qwen.costs import FRAME_S, FrameCost, MachineLimits, bound

Report = dict[str, Any]
STAGES = ("talker", "predictor", "codec")


def percentile(values: list[float], part: float) -> float:
    """The value below which `part` of them lie, of those measured."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def processor() -> str:
    with suppress(OSError):
        if found := re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text()):
            return found[1]
    return platform.processor() or "unknown processor"


def report(measured: dict[str, Any], limits: list[MachineLimits], about: dict[str, Any]) -> Report:
    """`measured`: name -> {"load_s", "turns", perhaps "busy_turns"}; the others are compared to the
    first. `limits`: what the machine could do at each turn, empty when unknown."""
    first = next(iter(measured.values()))["turns"]
    engines = {}
    for name, found in measured.items():
        engines[name] = _engine(found["load_s"], found["turns"], first, limits)
        if busy := found.get("busy_turns"):
            engines[name]["busy"] = _busy(busy, found["turns"])
    return {
        "phonate": __version__,
        "processor": processor(),
        **about,
        "limits": asdict(_middle(limits)) if limits else None,
        "engines": engines,
    }


def _middle(limits: list[MachineLimits]) -> MachineLimits:
    return MachineLimits(
        limits[0].threads,
        statistics.median(found.read_bytes_s for found in limits),
        statistics.median(found.mul_adds_s for found in limits),
    )


def _busy(busy: list[dict[str, Any]], quiet: list[dict[str, Any]]) -> dict[str, float]:
    """Turn by turn, as everything that is compared."""
    return {
        "factor": statistics.median(turn["factor"] for turn in busy),
        "times_slower": statistics.median(
            mine["factor"] / other["factor"] for mine, other in zip(busy, quiet, strict=True)
        ),
    }


def _engine(
    load_s: float,
    turns: list[dict[str, Any]],
    first: list[dict[str, Any]],
    limits: list[MachineLimits],
) -> dict[str, Any]:
    factors = [t["factor"] for t in turns]
    chunks = [gap for t in turns for gap in t["chunk_factors"]]
    figures: dict[str, Any] = {
        "factor": {
            "p10": percentile(factors, 0.1),
            "p50": statistics.median(factors),
            "p90": percentile(factors, 0.9),
        },
        "cpu_factor": statistics.median(t["cpu_factor"] for t in turns),
        "first_ms": {
            "p50": statistics.median(t["first_ms"] for t in turns),
            "p90": percentile([t["first_ms"] for t in turns], 0.9),
        },
        "chunk_factor": {f"p{p}": percentile(chunks, p / 100) for p in (50, 95, 99)}
        if chunks
        else None,
        "memory_mb": max(t["memory_mb"] for t in turns),
        "load_s": load_s,
        # Turn by turn: what else the machine did falls on neighbours alike.
        "times_as_fast": statistics.median(
            mine["factor"] / other["factor"] for mine, other in zip(turns, first, strict=True)
        ),
    }
    if turns[0].get("stages"):
        figures["stages"] = _stages(turns)
    if turns[0].get("cost") and limits:
        # Neighbours change what a machine can do from one minute to the next.
        least = [bound(FrameCost(**turns[0]["cost"]), found) for found in limits]
        figures["bound"] = statistics.median(least)
        figures["of_bound"] = statistics.median(
            best / factor for best, factor in zip(least, factors, strict=True)
        )
    return figures


def _stages(turns: list[dict[str, Any]]) -> dict[str, Any]:
    ms = {s: statistics.median(t["stages"][f"{s}_ms"] for t in turns) for s in STAGES}
    cost = turns[0].get("cost") or {}
    total = sum(ms.values()) or 1.0
    stages: dict[str, Any] = {s: {"ms": ms[s], "share": ms[s] / total} for s in STAGES}
    for stage in STAGES:
        if n := cost.get(f"{stage}_bytes"):
            stages[stage]["mb"] = n / 1e6
            if stage != "codec" and ms[stage]:
                stages[stage]["gb_s"] = n / ms[stage] / 1e6
    if (n := cost.get("codec_mul_adds")) and ms["codec"]:
        stages["codec"]["gmac_s"] = n / ms["codec"] / 1e6
    return stages


def report_lines(found: Report) -> Iterator[str]:
    """What a person reads."""
    weights = " (random weights)" if found["random_weights"] else ""
    yield f"{found['processor']}; phonate {found['phonate']}; {found['model']}{weights}"
    yield f"{found['frames']} frames, medians of {found['runs']} runs in turns"
    yield ""
    yield (
        f"{'engine':24} {'factor':>7} {'p10':>6} {'p90':>6} {'CPU':>6} {'first':>8} "
        f"{'memory':>8} {'load':>7}"
    )
    for name, e in found["engines"].items():
        f = e["factor"]
        yield (
            f"{name:24} {f['p50']:7.2f} {f['p10']:6.2f} {f['p90']:6.2f} {e['cpu_factor']:6.2f} "
            f"{e['first_ms']['p50']:5.0f} ms {e['memory_mb']:5.0f} MB {e['load_s']:5.1f} s"
        )
    names = list(found["engines"])
    for name in names[1:]:
        times = found["engines"][name]["times_as_fast"]
        yield f"{names[0]} is {times:.2f} times as fast as {name}"
    for name, e in found["engines"].items():
        if "busy" in e:
            yield (
                f"{name} beside {found['busy']} that compute: {e['busy']['factor']:.2f}, "
                f"{e['busy']['times_slower']:.2f} times slower"
            )
    for name, e in found["engines"].items():
        if "stages" in e:
            yield ""
            yield from _stage_lines(name, e)
    if limits := found["limits"]:
        yield ""
        yield (
            f"this machine, {limits['threads']} threads: {limits['read_bytes_s'] / 1e9:.1f} GB/s, "
            f"{limits['mul_adds_s'] / 1e9:.0f} G multiply-adds/s"
        )
        for name, e in found["engines"].items():
            if "bound" in e:
                yield (
                    f"bound of {name}: {e['bound']:.2f}; reached {100 * e['of_bound']:.0f} % of it"
                )


def _stage_lines(name: str, engine: dict[str, Any]) -> Iterator[str]:
    yield f"{name}, per frame of {1000 * FRAME_S:.0f} ms (the codec runs beside the others)"
    for stage, s in engine["stages"].items():
        rate = (
            f"{s['gb_s']:6.1f} GB/s" if "gb_s" in s
            else f"{s['gmac_s']:6.1f} G multiply-adds/s" if "gmac_s" in s
            else ""
        )  # fmt: skip
        moved = f"{s['mb']:7.0f} MB" if "mb" in s else " " * 10
        yield f"  {stage:10} {s['ms']:6.1f} ms {100 * s['share']:4.0f} % {moved} {rate}"
    if chunk := engine["chunk_factor"]:
        yield (
            "  time per chunk over its sound: "
            f"p50 {chunk['p50']:.2f}, p95 {chunk['p95']:.2f}, p99 {chunk['p99']:.2f}"
        )
