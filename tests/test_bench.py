"""`phonate bench` on a tiny model: it measures, prints, and writes what it was asked for."""

from __future__ import annotations

import json
import os
import re
import sys
import xml.etree.ElementTree as ET

import pytest
from typer.testing import CliRunner

from phonate.bench import BenchOptions, Worker, bench
from phonate.bench_picture import picture
from phonate.bench_report import percentile, report, report_lines
from phonate.cli import cli
from phonate.engine.models.factory import Recipe, make_model
from phonate.engine.qwen.costs import FrameCost, MachineLimits, bound, measure_machine
from phonate.engine.qwen.library_search import candidates, find_library
from phonate.errors import SetupError
from phonate.settings import Settings

needs_ours = pytest.mark.skipif(
    "phonate" not in dict(candidates()), reason="our own native library is not built here"
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_model(Recipe(kind="base", size="tiny"), tmp_path_factory.mktemp("tiny"), "Q8_0")


def turn(factor, first_ms=100.0, **more):
    return {
        "factor": factor,
        "cpu_factor": 2 * factor,
        "first_ms": first_ms,
        "chunk_factors": [factor, 2 * factor],
        "memory_mb": 900.0,
        **more,
    }


COST = {
    "talker_bytes": 400e6,
    "predictor_bytes": 1200e6,
    "codec_bytes": 200e6,
    "codec_mul_adds": 2.5e9,
}


def measured():
    stages = {"talker_ms": 20.0, "predictor_ms": 60.0, "codec_ms": 40.0}
    ours = [turn(f, cost=COST, stages=stages) for f in (1.0, 1.5, 3.0)]
    return {
        "phonate exact": {"load_s": 1.5, "turns": ours},
        "wheel <&>": {"load_s": 2.5, "turns": [turn(f) for f in (4.0, 3.0, 3.0)]},
    }


ABOUT = {"model": "a, b", "random_weights": True, "frames": 8, "runs": 3}
LIMITS = MachineLimits(threads=2, read_bytes_s=20e9, mul_adds_s=100e9)
SLOW = MachineLimits(threads=2, read_bytes_s=10e9, mul_adds_s=50e9)
THREE = [LIMITS, LIMITS, SLOW]


def test_the_bound_is_the_slower_of_memory_and_arithmetic():
    cost = FrameCost(400e6, 1150e6, 200e6, 2.4e9)
    assert bound(cost, LIMITS) == pytest.approx((400e6 + 1150e6 + 50e6) / 20e9 / 0.08)
    slow = MachineLimits(threads=2, read_bytes_s=20e9, mul_adds_s=10e9)
    assert bound(cost, slow) == pytest.approx(0.24 / 0.08)


def test_percentiles_are_values_that_were_measured():
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile([3, 1, 2], 0.99) == 3
    assert percentile([5.0], 0.1) == 5.0


def test_figures_of_a_report():
    engines = report(measured(), THREE, ABOUT)["engines"]
    ours = engines["phonate exact"]
    assert ours["factor"] == {"p10": 1.0, "p50": 1.5, "p90": 3.0}
    # The third turn, 3.0, met a machine half as fast: it reached as much of its bound as 1.5 did.
    assert ours["bound"] == pytest.approx(bound(FrameCost(**COST), LIMITS))
    assert ours["of_bound"] == pytest.approx(ours["bound"] / 1.5)
    assert ours["stages"]["predictor"]["gb_s"] == pytest.approx(20.0)
    assert ours["stages"]["codec"]["gmac_s"] == pytest.approx(62.5)
    # Of the ratios 4/1, 3/1.5, 3/3 the middle one, not the ratio of the medians.
    assert engines["wheel <&>"]["times_as_fast"] == pytest.approx(2.0)
    assert "bound" not in engines["wheel <&>"]
    text = "\n".join(report_lines(report(measured(), THREE, ABOUT)))
    assert "phonate exact is 2.00 times as fast as wheel <&>" in text
    assert "20.0 GB/s, 100 G multiply-adds/s" in text


def test_figures_beside_busy_processes():
    found = measured()
    found["phonate exact"]["busy_turns"] = [turn(f) for f in (2.0, 2.25, 6.0)]
    made = report(found, THREE, {**ABOUT, "busy": 1})
    # Of the ratios 2/1, 2.25/1.5, 6/3 the middle one.
    assert made["engines"]["phonate exact"]["busy"] == {"factor": 2.25, "times_slower": 2.0}
    assert "busy" not in made["engines"]["wheel <&>"]
    text = "\n".join(report_lines(made))
    assert "phonate exact beside 1 that compute: 2.25, 2.00 times slower" in text


def test_without_limits_there_is_no_bound():
    found = report(measured(), [], ABOUT)
    assert "bound" not in found["engines"]["phonate exact"]
    assert "this machine" not in "\n".join(report_lines(found))


def test_the_picture_is_well_formed_and_to_scale():
    root = ET.fromstring(picture(report(measured(), THREE, ABOUT)))
    bars = [
        float(r.get("width"))
        for r in root.iter("{http://www.w3.org/2000/svg}rect")
        if r.get("fill") != "white"
    ]
    assert bars[1] / bars[0] == pytest.approx(3.0 / 1.5, rel=0.01)
    talker, predictor, codec = bars[2:]
    assert predictor / talker == pytest.approx(3.0, rel=0.01)
    assert codec / talker == pytest.approx(2.0, rel=0.01)
    said = "".join(root.itertext())
    assert "wheel <&>" in said
    assert "1.50" in said


@needs_ours
def test_a_run_from_the_command_line(tiny, tmp_path):
    arguments = ["bench", "--talker", tiny.talker, "--codec", tiny.codec, "--frames", "12"]
    arguments += ["--library", "phonate", "--cpu-threads", "2", "--runs", "2", "--against", "fast"]
    arguments += ["--busy", "1"]
    arguments += ["--json", tmp_path / "b.json", "--picture", tmp_path / "b.svg"]
    result = CliRunner().invoke(cli, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    assert re.search(r"phonate exact +\d", result.stdout)
    assert re.search(r"bound of phonate fast: \d", result.stdout)
    found = json.loads((tmp_path / "b.json").read_text())
    exact, fast = found["engines"].values()
    assert list(found["engines"]) == ["phonate exact", "phonate fast"]
    assert found["runs"] == 2
    assert exact["busy"]["times_slower"] > 0
    assert exact["factor"]["p50"] > 0
    assert 0 < fast["stages"]["predictor"]["mb"] < exact["stages"]["predictor"]["mb"]
    assert exact["bound"] > 0
    ET.fromstring((tmp_path / "b.svg").read_text())


@needs_ours
def test_limits_of_this_machine():
    limits = measure_machine(find_library("phonate"), 1)
    assert limits.threads == 1
    assert 0.1e9 < limits.read_bytes_s < 1e12
    assert 0.1e9 < limits.mul_adds_s < 1e12


@needs_ours
def test_an_engine_that_cannot_start_says_why(tiny, tmp_path):
    broken = tmp_path / "talker.gguf"
    broken.write_bytes(tiny.talker.read_bytes()[:5000])
    settings = Settings(talker=str(broken), codec=str(tiny.codec), library="phonate")
    with pytest.raises(SetupError, match=r"talker\.gguf"):
        bench(settings, BenchOptions(frames=2, runs=1))


def test_a_worker_that_dies_is_an_error_with_its_last_words(tmp_path):
    import subprocess

    said = tmp_path / "said"
    with (
        said.open("w+") as file,
        subprocess.Popen(
            [sys.executable, "-c", "raise SystemExit('no weights today')"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env=os.environ,
        ) as process,
        pytest.raises(SetupError, match="wheel stopped: no weights today"),
    ):
        Worker("wheel", process, file)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"frames": 0}, "--frames is 0; it must be 1 to 2000"),
        ({"busy": -1}, "--busy is -1; it must be 0 to 64"),
        ({"runs": 1001}, "--runs is 1001; it must be 1 to 1000"),
        ({"against": ("llama",)}, "--against llama: choose of exact, fast, wheel, vox"),
    ],
)
def test_wrong_options(given, message):
    with pytest.raises(SetupError, match=re.escape(message)):
        BenchOptions(**given)


def test_vox_needs_the_random_model(tiny):
    settings = Settings(talker=str(tiny.talker), codec=str(tiny.codec))
    if not dict(candidates()):
        pytest.skip("no native library is installed: the command ends before it looks for peers")
    with pytest.raises(SetupError, match="needs the random model"):
        bench(settings, BenchOptions(against=("vox",)))
