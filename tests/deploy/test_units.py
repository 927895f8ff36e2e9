"""The systemd unit and its drop-ins, as systemd-analyze sees them. No manager is started."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fleet import DEPLOY

from phonate.settings import SPELLINGS

SYSTEMD = DEPLOY / "systemd"
DROP_INS = sorted(path.name for path in (SYSTEMD / "drop-ins").glob("*.conf"))


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    assert program, "systemd-analyze is not installed: apt-get install systemd"
    return subprocess.run(
        [program, "--no-pager", *arguments], capture_output=True, text=True, check=False
    )


def version() -> int:
    return int(analyze("--version").stdout.split()[1])


def installed(folder: Path, drop_in: str | None, name: str = "phonate.service") -> Path:
    """The unit with a program that exists here, and one drop-in beside it."""
    text = (SYSTEMD / "phonate.service").read_text()
    assert "/opt/phonate/bin/phonate" in text
    unit = folder / name
    unit.write_text(text.replace("/opt/phonate/bin/phonate", sys.executable))
    if drop_in is not None:
        extras = folder / f"{name}.d"
        extras.mkdir()
        shutil.copy(SYSTEMD / "drop-ins" / drop_in, extras)
    return unit


@pytest.mark.parametrize("drop_in", [None, *DROP_INS])
def test_systemd_understands_every_line(drop_in: str | None, tmp_path: Path) -> None:
    if drop_in == "notify-reload.conf" and version() < 253:
        pytest.skip(f"Type=notify-reload came with systemd 253; this is {version()}")
    name = "phonate@.service" if drop_in == "instance.conf" else "phonate.service"
    unit = installed(tmp_path, drop_in, name)
    seen = analyze("verify", str(unit).replace("@.", "@1."))
    ours = [line for line in seen.stderr.splitlines() if "phonate" in line]
    assert ours == []


def exposure(unit: Path) -> float:
    seen = analyze("security", "--offline=true", str(unit))
    found = re.search(r"exposure level for \S+: ([\d.]+)", seen.stdout)
    assert found, seen.stdout + seen.stderr
    return float(found[1])


def test_the_unit_is_hardened(tmp_path: Path) -> None:
    assert exposure(installed(tmp_path, None)) <= 1.5


def test_so_it_is_with_a_gpu(tmp_path: Path) -> None:
    assert exposure(installed(tmp_path, "cuda.conf")) <= 2.0


def test_every_variable_is_an_option() -> None:
    files = [SYSTEMD / "phonate.service", *(SYSTEMD / "drop-ins" / name for name in DROP_INS)]
    named = {name for file in files for name in re.findall(r"PHONATE_([A-Z_]+)=", file.read_text())}
    assert named
    for name in named:
        assert name.lower() in SPELLINGS, name


def test_time_to_stop_is_longer_than_what_the_server_takes() -> None:
    from phonate.settings import Settings

    text = (SYSTEMD / "phonate.service").read_text()
    given = int(re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)[1])  # type: ignore[index]
    # uvicorn waits 5 s longer, and the engine's threads get 5 s more.
    assert given > Settings().shutdown_timeout + 10
