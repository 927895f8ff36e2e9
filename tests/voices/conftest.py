"""A bucket for every test that wants one: moto's server on loopback."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_world import Proxy, World, make_bucket

from phonate.voices import bucket_shelf
from phonate.voices.place import Bucket


@pytest.fixture(scope="session")
def s3() -> Iterator[tuple[str, int]]:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield host, port
    server.stop()


@pytest.fixture
def world(s3: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    proxy = Proxy(s3)
    thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret-word")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setattr(bucket_shelf, "MISS_PAUSE_S", 0.0)
    name = f"voices-{secrets.token_hex(6)}"
    make_bucket(proxy.address, name)
    yield World(Bucket(name, "team/a"), proxy, tmp_path / "machines", monkeypatch)
    proxy.released.set()
    proxy.shutdown()
    proxy.server_close()
    thread.join(5)
