"""Numbers and words too long for a small voice, made speakable without losing a character."""

from __future__ import annotations

import re

MAX_RUN_CHARS = 24
"""The unknown-word net of the English voice reads 24 letters and drops the rest."""
MAX_RUN_PARTS = 8
"""That voice's time for one word grows with the cube of its parts: 8 take 1 ms, 40 take 50 ms,
400 five minutes."""
MAX_CARDINAL_DIGITS = 15
"""Longer numbers are read digit by digit: nobody follows quintillions. 67 digits raise in one
voice, 500 hang another."""

_LONG_NUMBER = re.compile(rf"\d{{{MAX_CARDINAL_DIGITS + 1},}}")
_RUN = re.compile(r"\S+")
_PART = re.compile(r"[^\W\d_]+|\d+|[\W_]")


def break_long_runs(text: str) -> str:
    """Blanks inside what is too long for one word; hyphens there become blanks."""
    return _RUN.sub(_breathing_run, _LONG_NUMBER.sub(_digit_groups, text))


def _digit_groups(match: re.Match[str]) -> str:
    """ "1234567..." -> "1 2 3, 4 5 6, 7 ...", as people read out a long number."""
    digits = match.group()
    return ", ".join(" ".join(digits[at : at + 3]) for at in range(0, len(digits), 3))


def _breathing_run(match: re.Match[str]) -> str:
    run = match.group()
    parts = _PART.findall(run)
    if len(run) <= MAX_RUN_CHARS and len(parts) <= MAX_RUN_PARTS:
        return run
    out: list[str] = []
    n_chars = n_parts = 0
    for part in parts:
        for at in range(0, len(part), MAX_RUN_CHARS):
            bit = part[at : at + MAX_RUN_CHARS]
            if bit in "-–":
                out.append(" ")
                n_chars = n_parts = 0
                continue
            if n_chars and (n_chars + len(bit) > MAX_RUN_CHARS or n_parts >= MAX_RUN_PARTS):
                out.append(" ")
                n_chars = n_parts = 0
            out.append(bit)
            n_chars, n_parts = n_chars + len(bit), n_parts + 1
    return "".join(out)
