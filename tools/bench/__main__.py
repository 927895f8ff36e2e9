"""`make bench`: what this machine does, as the tables of the README.

    python tools/bench [section ...] [--runs N]

Each figure is a median over interleaved runs, with the machine and the commit beside it.
"""

from __future__ import annotations

import argparse

import builtin
import cloning
import engine
import lanes
import overhead
import sessions
from common import commit, machine

SECTIONS = {
    "builtin": builtin.run,
    "overhead": overhead.run,
    "sessions": sessions.run,
    "engine": engine.run,
    "lanes": lanes.run,
    "cloning": cloning.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", help=", ".join(SECTIONS))
    parser.add_argument("--runs", type=int, default=15)
    given = parser.parse_args()
    print(f"{machine()}; phonate {commit()}; medians of {given.runs} runs")
    for name in given.sections or SECTIONS:
        SECTIONS[name](given.runs)


main()
