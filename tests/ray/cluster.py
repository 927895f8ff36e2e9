"""Ray Serve on this machine, on loopback, with two replicas of the built-in voice.

Everything that Ray starts is ended by `ray.shutdown` in the process that began it. Ray's own files
are in a folder of our own with a short name: its unix sockets must stay under 107 characters.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

import phonate.ray

DEPLOY = Path(__file__).parents[2] / "deploy" / "ray"

PATIENCE_S = 90.0
"""For every wait: long, for a busy machine. Tests wait for events, not for this."""

OPTIONS = {
    "min_replicas": 2, "replica_cpus": 1, "max_queued_requests": 3, "max_input_chars": 100_000,
    "max_output_bytes": 2**28, "shutdown_timeout": 40, "synthesis_timeout": 60,
}  # fmt: skip

SENTENCE = "This sentence is spoken again and again, so that there is enough to do for a while. "
"""About 5 s of speech; a second of work makes 30 to 60 s."""
LONG = SENTENCE * 250

T = TypeVar("T")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def wait_until(what: Callable[[], T], why: str) -> T:
    until = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < until, f"not in {PATIENCE_S:g} s: {why}"
        time.sleep(0.05)
    return found


@dataclass
class Cluster:
    port: int
    metrics_port: int
    folder: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def deploy(self, **options: Any) -> None:
        """Returns when the replicas that this asks for run."""
        from ray import serve

        given = {**OPTIONS, "voice_dir": str(self.folder / "voices"), **options}
        serve.run(phonate.ray.app(given), name="phonate")

    def pids(self) -> set[int]:
        """Of the replicas that run."""
        from ray.serve.context import _get_global_client

        applications = _get_global_client().get_serve_details()["applications"]
        replicas = applications["phonate"]["deployments"]["phonate"]["replicas"]
        return {one["pid"] for one in replicas if one["state"] == "RUNNING" and one["pid"]}

    def wait_for_replicas(self, without: frozenset[int] = frozenset()) -> set[int]:
        def both() -> set[int]:
            pids = self.pids()
            return pids if len(pids) == 2 and not pids & without else set()

        return wait_until(both, "two replicas")

    def utterances(self) -> list[str]:
        """What the replicas logged about each utterance that is over."""
        lines: list[str] = []
        for log in self.folder.glob("session_2*/logs/worker-*.err"):
            lines += re.findall(r".* phonate\.speech: .*", log.read_text(errors="replace"))
        return lines

    def metrics(self) -> list[str]:
        """The lines about phonate of Ray's own exporter."""
        with contextlib.suppress(httpx.TransportError):
            text = httpx.get(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=30).text
            return [line for line in text.splitlines() if line.startswith("ray_phonate_")]
        return []


def environment() -> dict[str, str]:
    """What deploy/ray/ray.env tells Ray's processes."""
    lines = (DEPLOY / "ray.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="phr", dir="/tmp"))
    os.environ.update(
        environment(),
        RAY_AUTH_TOKEN_PATH=str(folder / "token"),  # not in the home of whoever runs this
        RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",  # as there: the address of the node is loopback
    )
    (folder / "token").write_text(os.urandom(32).hex())
    import ray
    from ray import serve

    made = Cluster(free_port(), free_port(), folder)
    try:
        ray.init(
            address="local", include_dashboard=False, num_cpus=4, object_store_memory=100 * 2**20,
            log_to_driver=False, _temp_dir=str(folder), _metrics_export_port=made.metrics_port,
            _system_config={"metrics_report_interval_ms": 2000},
        )  # fmt: skip
        serve.start(http_options={"host": "127.0.0.1", "port": made.port})
        made.deploy()
        yield made
    finally:
        serve.shutdown()
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
