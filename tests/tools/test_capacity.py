"""The simulation against what queueing theory knows for sure."""

from __future__ import annotations

import math
import statistics
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "tools"))

import capacity
from capacity import Load, Profile, replicas_for, simulate

ONE_LANE = Profile((0.5,), (0.0,))


def test_one_lane_waits_as_long_as_the_formula_says():
    # M/G/1: mean wait = rate * E[S^2] / (2 (1 - utilisation)), Pollaczek and Khinchine.
    load = Load(per_hour=1080, audio_s=4.0, spread=0.6, queued=10**9)
    outcome = simulate(ONE_LANE, load, 1, seconds=400_000)
    service, rate = 2.0, 0.3
    second_moment = service**2 * math.exp(load.spread**2)
    expected = rate * second_moment / (2 * (1 - rate * service))
    assert statistics.mean(outcome.waits_s) == pytest.approx(expected, rel=0.05)
    assert outcome.busy_s == pytest.approx(0.6 * (400_000 + capacity.WARM_UP_S), rel=0.02)


def test_without_places_the_refused_are_as_many_as_the_formula_says():
    # M/G/c/c, Erlang's loss formula: it holds for any distribution of the service.
    offered = 3.0
    load = Load(per_hour=3600 * offered / 2.0, audio_s=4.0, queued=0)
    outcome = simulate(Profile((0.5, 0.25, 0.5 / 3, 0.125), (0.0,) * 4), load, 1, seconds=100_000)
    terms = [offered**k / math.factorial(k) for k in range(5)]
    assert outcome.refused_share == pytest.approx(terms[4] / sum(terms), rel=0.05)


def test_lanes_share_what_there_is():
    # Two seconds of sound on each of two lanes, 0.5 s of work a second, both at once: two seconds.
    replica, begun = capacity.Replica(Profile((0.5, 0.5), (0.1, 0.2)), queued=1), []
    assert replica.offer(0.0, 2.0, begun)
    assert replica.offer(0.0, 2.0, begun)
    assert replica.offer(0.0, 2.0, begun)
    assert not replica.offer(0.0, 2.0, begun)
    replica.advance(1.9, begun)
    assert replica.load == 3
    replica.advance(2.1, begun)
    assert replica.load == 1
    assert begun == [(0.0, 0.1), (0.0, 0.2), (0.0, pytest.approx(2.0 + 0.2))]


def test_least_connections_need_fewer_than_chance():
    load = Load(per_hour=20_000)
    by_load = simulate(ONE_LANE, load, 14, seconds=600)
    by_chance = simulate(ONE_LANE, load, 14, seconds=600, least_connections=False)
    assert by_load.wait(0.99) < by_chance.wait(0.99) / 2


def test_the_least_number_is_enough_and_one_less_is_not():
    load = Load(per_hour=20_000)
    n = replicas_for(ONE_LANE, load, p99_s=1.0, refused=0.001)
    assert n >= 20_000 / 3600 * 4 * 0.5
    assert simulate(ONE_LANE, load, n).wait(0.99) <= 1.0
    assert simulate(ONE_LANE, load, n - 1).wait(0.99) > 1.0


def test_what_no_number_can_do_is_said(capsys):
    command = ["--per-hour", "10", "--factors", "1.0", "--first-s", "2.0", "--p99-s", "1"]
    assert capacity.main(command) == 1
    assert "takes 2.0 s, longer than 1.0 s" in capsys.readouterr().err


def test_the_table(capsys):
    assert capacity.main(["--per-hour", "3600", "--profile", "builtin", "--seconds", "60"]) == 0
    assert "1 replicas for 3,600 utterances of 4 s" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [["--factors", "1"], ["--factors", "1,2", "--first-s", "1"]])
def test_lists_that_do_not_fit(wrong):
    with pytest.raises(SystemExit):
        capacity.main(["--per-hour", "1", *wrong])
