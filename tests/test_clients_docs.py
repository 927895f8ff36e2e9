"""docs/CLIENTS.md and tests/contract agree: a row a test file, the versions that are installed."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONTRACT = ROOT / "tests" / "contract"
PAGE = (ROOT / "docs" / "CLIENTS.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| client")
]
CLIENTS = [row[0] for row in ROWS]
HARNESS = {"test_examples"}
"""Test files that are about no single client."""


def pinned():
    """Every version that is installed."""
    found = set()
    for name in ("requirements.txt", "requirements-no-deps.txt"):
        found |= set(re.findall(r"==(\S+)", (CONTRACT / name).read_text()))
    package = json.loads((CONTRACT / "node" / "package.json").read_text())
    return found | set(package["dependencies"].values())


def test_the_table_is_found():
    assert len(ROWS) >= 13
    assert {len(row) for row in ROWS} == {6}


def test_every_row_has_a_test_and_every_test_a_row():
    files = {path.stem for path in CONTRACT.glob("test_*.py")} - HARNESS
    assert sorted(row[5] for row in ROWS) == sorted(files)


@pytest.mark.parametrize("row", ROWS, ids=CLIENTS)
def test_the_version_is_the_one_that_is_installed(row):
    if row[1] == "as known":
        return
    for version in re.findall(r"\d+\.\d+\.\d+", row[1]):
        assert version in pinned()


def test_every_installed_version_is_named():
    named = set(re.findall(r"\d+\.\d+\.\d+", " ".join(row[1] for row in ROWS)))
    assert named == pinned()


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_has_an_example_that_is_run(client):
    section = re.search(rf"^## {re.escape(client)}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert section is not None
    assert re.search(r"^```\w+ run$", section[1], re.M)


WORDS = {
    "abort": "abort",
    "cancel": "cancelling",
    "close": "closing|hangs_up",
    "cut": "cut",
    "event": "event",
    "interruption": "interruption",
    "refus": "refus|error|wrong",
}


@pytest.mark.parametrize("row", ROWS, ids=CLIENTS)
def test_what_is_said_to_be_run_is_run(row):
    """A word of the column "what is run" stands in the name of a test of that file."""
    tests = " ".join(re.findall(r"def (test_\w+)", (CONTRACT / f"{row[5]}.py").read_text()))
    for said, named in WORDS.items():
        if re.search(rf"\b{said}", row[2]):
            assert re.search(named, tests), said


def test_the_lock_names_no_place_to_download_from():
    lock = (CONTRACT / "node" / "package-lock.json").read_text()
    assert "://" not in lock
    assert '"integrity"' in lock
