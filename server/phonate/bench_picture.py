"""The picture of `phonate bench`: real-time factors as bars, stages beneath, written as SVG."""

from __future__ import annotations

from html import escape
from typing import Any

WIDTH, LEFT, BAR, GAP = 720, 190, 22, 12
COLOURS = {"talker": "#4c78a8", "predictor": "#f58518", "codec": "#54a24b"}
INK, FAINT, MAIN = "#222", "#999", "#4c78a8"


def picture(found: dict[str, Any]) -> str:
    """`found` as `bench_report.report` gives it."""
    engines = found["engines"]
    most = max(1.0, *(e["factor"]["p90"] for e in engines.values()))
    scale = (WIDTH - LEFT - 90) / most
    parts = [_text(16, 26, found["processor"], size=15), _text(16, 46, _subtitle(found), FAINT)]
    y = 70
    for name, engine in engines.items():
        parts += _factor_bar(y, name, engine, scale)
        y += BAR + GAP
    parts += [
        _line(LEFT + scale, 62, y - GAP + 8, "4 3"),
        _text(LEFT + scale + 4, y + 8, "1.0: as fast as speech", FAINT, 11),
    ]
    y += 34
    for name, engine in engines.items():
        if "stages" in engine:
            parts += _stage_bar(y, name, engine["stages"])
            y += BAR + 40
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" '
        f'font-family="sans-serif">\n<rect width="{WIDTH}" height="{y}" fill="white"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _subtitle(found: dict[str, Any]) -> str:
    weights = ", random weights" if found["random_weights"] else ""
    return (
        f"real-time factor, less is faster; {found['model']}{weights}; "
        f"{found['frames']} frames, {found['runs']} runs"
    )


def _factor_bar(y: float, name: str, engine: dict[str, Any], scale: float) -> list[str]:
    factor = engine["factor"]
    end = LEFT + factor["p50"] * scale
    parts = [
        _text(LEFT - 8, y + 16, name, anchor="end"),
        _rect(LEFT, y, factor["p50"] * scale, MAIN),
        _text(LEFT + factor["p90"] * scale + 6, y + 16, f"{factor['p50']:.2f}"),
        f'<path d="M{LEFT + factor["p10"] * scale:.1f} {y + BAR / 2} '
        f'H{LEFT + factor["p90"] * scale:.1f}" stroke="{INK}"/>',
    ]
    if "bound" in engine and engine["bound"] * scale < end:
        x = LEFT + engine["bound"] * scale
        parts.append(f'<path d="M{x:.1f} {y} V{y + BAR}" stroke="white" stroke-width="2"/>')
    return parts


def _stage_bar(y: float, name: str, stages: dict[str, Any]) -> list[str]:
    total = sum(s["ms"] for s in stages.values()) or 1.0
    scale = (WIDTH - LEFT - 90) / total
    parts, x = [_text(LEFT - 8, y + 16, name, anchor="end")], float(LEFT)
    for stage, figures in stages.items():
        width = figures["ms"] * scale
        parts += [
            _rect(x, y, width, COLOURS[stage]),
            _text(x, y + BAR + 14, f"{stage} {figures['ms']:.0f} ms", size=11),
        ]
        x += max(width, 1.0)
    return parts


def _rect(x: float, y: float, width: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{colour}"/>'


def _line(x: float, top: float, bottom: float, dashes: str) -> str:
    return f'<path d="M{x:.1f} {top} V{bottom}" stroke="{FAINT}" stroke-dasharray="{dashes}"/>'


def _text(
    x: float, y: float, text: str, colour: str = INK, size: int = 13, anchor: str = "start"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" font-size="{size}" fill="{colour}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )
