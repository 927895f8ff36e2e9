"""How many replicas a load needs, by simulation from measured figures.

    python tools/capacity.py --per-hour 1000000 --profile builtin
    python tools/capacity.py --per-hour 9000 --factors 1.6,1.52,1.4,1.2 --first-s 0.2,0.2,0.3,0.4

A replica is one phonate: `--max-batch` lanes that share it, and `--max-queued-requests` places
before them. Utterances arrive at random (Poisson) at the rate of the busiest hour, their sound
lasts a log-normal time, a balancer sends each to a replica. With n lanes at work a replica makes
one second of sound in factors[n] seconds, shared evenly, and whoever starts then waits first_s[n]
for the first sound. Whoever finds all places taken is refused (503). Not in the model: networks,
the balancer's own limits, clients that try again, replicas that start or die.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

WARM_UP_S = 30.0
"""At the start all is empty: utterances that arrive then do not count."""


@dataclass(frozen=True)
class Profile:
    """One replica, measured (README, docs/ENGINE.md). Element n - 1 of a list is for n lanes."""

    factors: tuple[float, ...]
    first_s: tuple[float, ...]


PROFILES = {
    # The built-in voice, one lane, one core: the README's paragraph.
    "builtin": Profile((0.015,), (0.05,)),
    # Qwen3-TTS 0.6B Q8_0, two cores, eight lanes: docs/ENGINE.md; between its rows the worse one.
    "qwen-0.6b": Profile(
        (1.60, 1.52, 1.52, 1.20, 1.20, 1.20, 1.20, 0.82),
        (0.16, 0.21, 0.52, 0.52, 0.95, 0.95, 0.95, 0.95),
    ),
}


@dataclass(frozen=True)
class Load:
    per_hour: float
    audio_s: float = 4.0
    """Mean length of an utterance."""
    spread: float = 0.6
    """Sigma of its logarithm."""
    queued: int = 8
    """Places in front of the lanes of one replica."""


@dataclass
class Outcome:
    waits_s: list[float] = field(default_factory=list)
    """From arrival to the first sound, of those that were not refused."""
    refused: int = 0
    busy_s: float = 0.0
    """Of all replicas together, while anything was at work."""

    @property
    def refused_share(self) -> float:
        return self.refused / max(1, self.refused + len(self.waits_s))

    def wait(self, q: float) -> float:
        """Quantile of the waits; inf when everybody was refused."""
        if not self.waits_s:
            return math.inf
        ordered = sorted(self.waits_s)
        return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


class Replica:
    """Lanes that share one engine. `_done` counts the seconds of sound that each lane has made
    since the beginning: a lane ends when that has grown by its own sound."""

    def __init__(self, profile: Profile, queued: int) -> None:
        self._profile = profile
        self._places = queued
        self._now = self._done = 0.0
        self._ends: list[float] = []
        self._waiting: deque[tuple[float, float]] = deque()
        self.busy_s = 0.0

    @property
    def load(self) -> int:
        return len(self._ends) + len(self._waiting)

    def advance(self, now: float, waits: list[tuple[float, float]]) -> None:
        """Work until `now`. Appends (arrival, wait for the first sound) of those that began."""
        while self._ends:
            per_second = len(self._ends) * self._profile.factors[len(self._ends) - 1]
            ends_at = self._now + (self._ends[0] - self._done) * per_second
            if ends_at > now:
                self._done += (now - self._now) / per_second
                self.busy_s += now - self._now
                break
            self.busy_s += ends_at - self._now
            self._now, self._done = ends_at, heapq.heappop(self._ends)
            if self._waiting:
                self._begin(*self._waiting.popleft(), waits)
        self._now = now

    def offer(self, arrived: float, audio_s: float, waits: list[tuple[float, float]]) -> bool:
        """False: refused."""
        if len(self._ends) < len(self._profile.factors):
            self._begin(arrived, audio_s, waits)
        elif len(self._waiting) < self._places:
            self._waiting.append((arrived, audio_s))
        else:
            return False
        return True

    def _begin(self, arrived: float, audio_s: float, waits: list[tuple[float, float]]) -> None:
        heapq.heappush(self._ends, self._done + audio_s)
        waits.append((arrived, self._now - arrived + self._profile.first_s[len(self._ends) - 1]))


def simulate(
    profile: Profile,
    load: Load,
    replicas: int,
    *,
    seconds: float = 300.0,
    seed: int = 1,
    least_connections: bool = True,
) -> Outcome:
    """`seconds` of arrivals after the warm-up, then until all are served."""
    draw = random.Random(seed)  # noqa: S311 - a simulation
    fleet = [Replica(profile, load.queued) for _ in range(replicas)]
    outcome, now = Outcome(), 0.0
    waits: list[tuple[float, float]] = []
    mean_log = math.log(load.audio_s) - load.spread**2 / 2
    while (now := now + draw.expovariate(load.per_hour / 3600)) < WARM_UP_S + seconds:
        for replica in fleet:
            replica.advance(now, waits)
        first = draw.randrange(replicas)
        turn = fleet[first:] + fleet[:first]
        chosen = min(turn, key=lambda one: one.load) if least_connections else turn[0]
        audio_s = draw.lognormvariate(mean_log, load.spread)
        if not chosen.offer(now, audio_s, waits) and now >= WARM_UP_S:
            outcome.refused += 1
    for replica in fleet:
        replica.advance(WARM_UP_S + seconds, waits)
        outcome.busy_s += replica.busy_s
        replica.advance(math.inf, waits)  # who still waits is counted, not the work
    outcome.waits_s = [wait for arrived, wait in waits if arrived >= WARM_UP_S]
    return outcome


def replicas_for(
    profile: Profile, load: Load, *, p99_s: float, refused: float, seconds: float = 300.0
) -> int:
    """The least number with which 99 of 100 hear something within `p99_s` and no more than the
    share `refused` is turned away. Raises ValueError when the first sound alone takes longer."""
    if profile.first_s[0] > p99_s:
        raise ValueError(
            f"The first sound alone takes {profile.first_s[0]} s, longer than {p99_s} s."
        )

    def enough(n: int) -> bool:
        outcome = simulate(profile, load, n, seconds=seconds)
        return outcome.wait(0.99) <= p99_s and outcome.refused_share <= refused

    high = 1
    while not enough(high):
        high *= 2
    low = high // 2  # not enough, or 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--per-hour", type=float, required=True, help="utterances, busiest hour")
    parser.add_argument("--profile", choices=PROFILES, default="builtin")
    parser.add_argument("--factors", type=_numbers, help="instead of a profile, by lanes at work")
    parser.add_argument("--first-s", type=_numbers, help="as many as --factors")
    parser.add_argument("--audio-s", type=float, default=Load.audio_s, help="mean length")
    parser.add_argument("--queued", type=int, default=Load.queued, help="--max-queued-requests")
    parser.add_argument("--p99-s", type=float, default=1.0, help="first sound for 99 of 100")
    parser.add_argument("--refused", type=float, default=0.001, help="share that may get 503")
    parser.add_argument("--seconds", type=float, default=300.0, help="simulated")
    given = parser.parse_args(arguments)
    if (given.factors is None) != (given.first_s is None):
        parser.error("--factors and --first-s go together")
    if given.factors and len(given.factors) != len(given.first_s):
        parser.error("--factors and --first-s: one number for each count of lanes")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parse(arguments)
    own = given.factors is not None
    profile = Profile(given.factors, given.first_s) if own else PROFILES[given.profile]
    load = Load(given.per_hour, audio_s=given.audio_s, queued=given.queued)
    try:
        n = replicas_for(
            profile, load, p99_s=given.p99_s, refused=given.refused, seconds=given.seconds
        )
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{n} replicas for {given.per_hour:,.0f} utterances of {given.audio_s:g} s in an hour\n")
    print("| replicas | balancer | at work | first sound p50 | p99 | refused |")
    print("|---|---|---|---|---|---|")
    spared = max(1, math.ceil(n * 0.9))
    for count, least in dict.fromkeys(((spared, True), (n, True), (n, False), (2 * n, False))):
        outcome = simulate(profile, load, count, seconds=given.seconds, least_connections=least)
        at_work = outcome.busy_s / (count * (WARM_UP_S + given.seconds))
        print(
            f"| {count} | {'least connections' if least else 'at random'} | {at_work:.0%} "
            f"| {outcome.wait(0.5):.2f} s | {outcome.wait(0.99):.2f} s "
            f"| {outcome.refused_share:.2%} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
