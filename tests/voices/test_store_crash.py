from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the driver forks; Windows cannot")
@pytest.mark.parametrize("way", ["random", "every-call"])
def test_a_killed_writer_leaves_every_voice_old_or_new_and_no_debris(
    tmp_path: Path, way: str
) -> None:
    here = Path(__file__).parent
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(here), *sys.path]),
        "OPENBLAS_NUM_THREADS": "1",  # a process with threads should not fork
    }
    done = subprocess.run(
        [sys.executable, str(here / "crash_driver.py"), way, str(tmp_path / "voices")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
