"""Look at the locked packages: `make check` runs it offline, `make audit` whole.

    python tools/check_lock.py [LOCK] [--index URL] [--offline]

1. Every line of the lock pins one exact version.
2. No locked version is yanked or a pre-release, as far as the package index tells (PEP 691/700).
3. No package of the default install (the dependencies of phonate, not its extras) is under the GPL
   or AGPL, by the metadata of what is installed here.
4. Known vulnerabilities: `pip-audit`, where it is installed and its service answers.

What cannot be looked at here (no network, a package not installed) is said, never passed over in
silence. Exit 1 when something is wrong.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "tests" / "requirements.lock"
PROJECT = ROOT / "pyproject.toml"
INDEX = os.environ.get("PIP_INDEX_URL")
TIMEOUT_S = 10
SHOWN_LICENCE = 80

# LGPL is fine for a library that is imported: hence the look behind.
COPYLEFT = re.compile(
    r"(?<![Ll])\bA?GPL|(?<!Lesser )(?<!Library or Lesser )General Public License", re.IGNORECASE
)
LESSER = re.compile(r"LGPL|Lesser General Public License|Library General Public", re.IGNORECASE)

BETA_ONLY = frozenset(
    {
        "opentelemetry-exporter-http-transport",
        "opentelemetry-exporter-otlp-common",
        "opentelemetry-semantic-conventions",
    }
)
"""Parts of OpenTelemetry's stable SDK whose own releases are all called beta."""

Fetch = Callable[[str], dict[str, Any] | None]
"""The index's page of a project, None when the index does not answer."""


def pins(text: str) -> tuple[list[tuple[str, Version]], list[str]]:
    """(name, version) of every pinned line, and what is wrong with the others."""
    found, wrong = [], []
    for number, line in enumerate(text.splitlines(), 1):
        wanted = line.partition(" #")[0].strip()
        if not wanted or wanted.startswith("#"):
            continue
        try:
            requirement = Requirement(wanted)
        except InvalidRequirement:
            wrong.append(f"line {number}: {wanted!r} is no requirement")
            continue
        rules = list(requirement.specifier)
        if len(rules) != 1 or rules[0].operator not in ("==", "===") or "*" in rules[0].version:
            wrong.append(f"line {number}: {wanted!r} is not pinned to one version (NAME==VERSION)")
            continue
        found.append((canonicalize_name(requirement.name), Version(rules[0].version)))
    return found, wrong


def prereleases(locked: list[tuple[str, Version]]) -> list[str]:
    return [f"{name} {version} is a pre-release" for name, version in locked
            if version.is_prerelease and name not in BETA_ONLY]  # fmt: skip


def from_index(index: str, name: str) -> dict[str, Any] | None:
    request = urllib.request.Request(  # noqa: S310 - the scheme is checked in main
        f"{index.rstrip('/')}/{name}/", headers={"Accept": "application/vnd.pypi.simple.v1+json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            page = json.load(answer)
    except (OSError, ValueError):  # URLError is an OSError
        return None
    return page if isinstance(page, dict) else None


def yanked(locked: list[tuple[str, Version]], fetch: Fetch) -> tuple[list[str], list[str]]:
    """(what is wrong, names that the index said nothing about)."""
    with ThreadPoolExecutor(8) as pool:
        pages = list(pool.map(fetch, [name for name, _ in locked]))
    wrong, unknown = [], []
    for (name, version), page in zip(locked, pages, strict=True):
        files = [] if page is None else list(_files(page, name, version))
        if not files:
            unknown.append(name)
        elif all(file.get("yanked") for file in files):
            why = next((f["yanked"] for f in files if isinstance(f["yanked"], str)), "no reason")
            wrong.append(f"{name} {version} was yanked ({why}): run `make lock`")
    return wrong, unknown


def _files(page: dict[str, Any], name: str, version: Version) -> Iterator[dict[str, Any]]:
    """Files of this version. Wheels say it between the first two dashes, sdists after the last."""
    for file in page.get("files", []):
        stem = re.sub(r"\.(whl|tar\.gz|zip|tar\.bz2)$", "", file.get("filename", ""))
        wheel = file.get("filename", "").endswith(".whl")
        part = stem.split("-")[1] if wheel and "-" in stem else stem.rpartition("-")[2]
        try:
            if Version(part) == version:
                yield file
        except ValueError:
            continue


def default_install(project: Path = PROJECT) -> tuple[set[str], set[str]]:
    """(names that `pip install` of the project brings here, names among them that are missing)."""
    seen: set[str] = set()
    missing: set[str] = set()
    todo = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["dependencies"]
    while todo:
        requirement = Requirement(todo.pop())
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        name = canonicalize_name(requirement.name)
        if name in seen:
            continue
        seen.add(name)
        try:
            todo += importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            missing.add(name)
    return seen - missing, missing


def licence_of(name: str) -> str:
    """Expression, classifiers and, when it is short, the old field: that may be a whole text."""
    data = importlib.metadata.metadata(name)
    parts = [data.get("License-Expression") or ""]
    parts += [c.rpartition("::")[2].strip() for c in data.get_all("Classifier") or []
              if c.startswith("License")]  # fmt: skip
    field = (data.get("License") or "").strip()
    if field and len(field) <= SHOWN_LICENCE:
        parts.append(field)
    return "; ".join(dict.fromkeys(part for part in parts if part))


def is_copyleft(licence: str) -> bool:
    """GPL or AGPL with no other licence to choose."""
    choices = re.split(r"\bOR\b", licence)
    return all(COPYLEFT.search(LESSER.sub("", choice)) is not None for choice in choices)


def licences(names: set[str]) -> tuple[list[str], list[str]]:
    """(what is wrong, names that do not say)."""
    told = {name: licence_of(name) for name in sorted(names)}
    wrong = [f"{name} is under {text!r}: not for the default install"
             for name, text in told.items() if text and is_copyleft(text)]  # fmt: skip
    return wrong, [name for name, text in told.items() if not text]


def audit(lock: Path) -> tuple[list[str], str]:
    """(what is wrong, what was done)."""
    if importlib.util.find_spec("pip_audit") is None:
        return [], "not looked at: pip-audit is not installed"
    done = subprocess.run(
        [sys.executable, "-m", "pip_audit", "-r", str(lock), "--no-deps", "--disable-pip",
         "--progress-spinner", "off", "--timeout", str(TIMEOUT_S)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == 0:
        return [], "none known"
    if "vulnerabilit" in done.stderr.lower() and done.stdout.strip():
        return done.stdout.strip().splitlines(), "found"
    reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
    return [], f"not looked at: the service does not answer ({reason[:120]})"


def check(lock: Path, fetch: Fetch | None) -> int:
    """Print the report; the exit code."""
    locked, wrong = pins(lock.read_text(encoding="utf-8"))
    print(f"pinned: {len(locked)} packages, each to one version" if not wrong else "pinned: no")
    wrong += prereleases(locked)
    if fetch is None:
        print("yanked: not looked at (--offline)")
    else:
        bad, unknown = yanked(locked, fetch)
        wrong += bad
        silent = f"; the index said nothing about {len(unknown)}" if unknown else ""
        if len(unknown) == len(locked):
            print("yanked: not looked at: the package index does not answer")
        else:
            print(f"yanked: {len(bad)} of {len(locked) - len(unknown)}{silent}")
    names, missing = default_install()
    bad, unsaid = licences(names)
    wrong += bad
    print(f"licences: {len(names)} packages of the default install, {len(bad)} under the GPL"
          + (f"; not installed here: {', '.join(sorted(missing))}" if missing else "")
          + (f"; without a word about it: {', '.join(unsaid)}" if unsaid else ""))  # fmt: skip
    bad, done = audit(lock) if fetch is not None else ([], "not looked at (--offline)")
    wrong += bad
    print(f"vulnerabilities: {done}")
    for line in wrong:
        print(f"!! {line}")
    return 1 if wrong else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("lock", type=Path, nargs="?", default=LOCK)
    parser.add_argument(
        "--index", default=INDEX, help="a simple index that speaks JSON; default: PIP_INDEX_URL"
    )
    parser.add_argument("--offline", action="store_true", help="ask nobody")
    given = parser.parse_args(arguments)
    if given.offline:
        return check(given.lock, None)
    if given.index is None:
        parser.error("no index: give --index or set PIP_INDEX_URL, or look only here: --offline")
    if not given.index.startswith(("https://", "http://")):
        parser.error("--index must be an http(s) address")
    return check(given.lock, partial(from_index, given.index))


if __name__ == "__main__":
    sys.exit(main())
