"""Fuzz the session machine: `python tests/fuzz/fuzz_session.py [seconds] [first seed]`.

Random clients, engines, transports and clocks against the session and its vLLM-Omni translation.
Documented errors are passes; an exception, a frame out of place or a wrong clock ends the run with
the seed and the steps that led there (exit code 1). One seed again: `... fuzz_session.py 0 SEED`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "speech"))

from session_walk import Walk

KINDS = (
    {},
    {"steps": 400},
    {"steps": 40, "wild": 0.4},
    {"vllm": True},
    {"vllm": True, "wild": 0.3},
)


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % 10**9
    first, until = seed, time.monotonic() + seconds
    while True:
        for kind in KINDS:
            try:
                Walk(seed, **kind).run()
            except AssertionError as error:
                print(f"FAILED {kind} {error}", file=sys.stderr)
                return 1
        seed += 1
        if time.monotonic() >= until:
            break
    print(f"{(seed - first) * len(KINDS)} sessions from seed {first}: all promises kept")
    return 0


if __name__ == "__main__":
    sys.exit(main())
