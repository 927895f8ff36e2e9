"""The dashboard and the alerts ask only for what a server tells."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest
from support import running

from phonate.api.metrics import _CAUSES
from phonate.engine.base import Vitals
from phonate.engine.scripted import Fail, ScriptedEngine
from phonate.errors import EngineFailure

DEPLOY = Path(__file__).parent.parent / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "phonate.json").read_text())
ALERTS = (DEPLOY / "prometheus" / "alerts.yml").read_text()

OUTCOMES = {"stop", "length", "cancelled", "silent", "failed", "refused"}
"""Of speech/observer.py."""


def expressions() -> list[str]:
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    # A rule's expression ends where its next key begins.
    rules = re.findall(r"expr: (.*?)\n        (?:for|labels):", ALERTS, re.DOTALL)
    assert len(rules) == ALERTS.count("- alert:")
    return [*panels, *rules]


class Replaced(ScriptedEngine):
    """Tells what an engine in a process of its own tells too."""

    vitals = Vitals(up=True, restarts={"crashed": 1})


@pytest.fixture(scope="module")
def told() -> dict[str, set[str]]:
    """Series name -> its labels, of a server that has spoken and failed."""
    with running(Replaced({"bad": [Fail(EngineFailure("x"))]})) as server:
        for text in ("Hello.", "bad"):
            httpx.post(f"{server.address}/v1/audio/speech", json={"input": text})
        text = httpx.get(f"{server.address}/metrics").text
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if match := re.match(r"(phonate_\w+)(?:\{(.*)\})? ", line):
            labels = set(re.findall(r'(\w+)="', match[2] or ""))
            found.setdefault(match[1], set()).update(labels)
    return found


def test_every_metric_exists(told: dict[str, set[str]]) -> None:
    asked = {name for text in expressions() for name in re.findall(r"phonate_\w+", text)}
    assert len(asked) > 10
    assert asked - told.keys() == set()


def test_labels_exist_with_these_values(told: dict[str, set[str]]) -> None:
    for text in expressions():
        for name, inside in re.findall(r"(phonate_\w+)\{(.*?)\}", text):
            for label, value in re.findall(r'(\w+)=~?"([^"]*)"', inside):
                if label in ("instance", "job"):  # Prometheus adds them
                    continue
                assert label in told[name], (name, label)
                known = {"cause": _CAUSES | {"other"}, "outcome": OUTCOMES}[label]
                assert set(value.split("|")) <= known, text
        for labels in re.findall(r"by \((.*?)\)", text):
            names = {part.strip() for part in labels.split(",")}
            own = set().union(*(told[name] for name in re.findall(r"phonate_\w+", text)))
            assert names <= own | {"instance"}, text


def test_panels_lie_side_by_side() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells
