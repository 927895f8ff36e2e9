"""An S3 on loopback and a proxy before it that can spoil what goes through."""

from __future__ import annotations

import contextlib
import http.client
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

import httpx
import pytest

from phonate.voices import mirror
from phonate.voices.objects import Listed, Objects
from phonate.voices.place import Bucket

Fate = Literal["pass", "hang", "lost answer"] | int
"""What becomes of a request: a number is the status that it gets without ever arriving."""
Plan = Callable[[str, str], Fate]

PARTS = ("index", "files")
_QUIET = {"transfer-encoding", "connection", "content-length"}


@dataclass
class World:
    """One bucket, seen by machines that each have a cache of their own."""

    bucket: Bucket
    proxy: Proxy
    folder: Path
    patch: pytest.MonkeyPatch
    objects: Objects = field(init=False)

    def __post_init__(self) -> None:
        self.be("machine-a")
        self.objects = Objects(self.bucket)

    def be(self, machine: str) -> None:
        """From now on stores are opened on this machine."""
        cache = str(self.folder / machine)
        self.patch.setattr(mirror.platformdirs, "user_cache_dir", lambda name: cache)

    def keys(self) -> list[str]:
        """Everything there is, with ids and uploads left out."""
        return sorted(_plain(item) for part in PARTS for item in self.objects.list(part))

    def sizes(self) -> dict[str, int]:
        """Likewise, with the bytes of each."""
        found = [item for part in PARTS for item in self.objects.list(part)]
        return {_plain(item): item.n_bytes for item in found}


def _plain(item: Listed) -> str:
    return re.sub(r"_[0-9a-f]{24}|/[0-9a-f]{32}(?=/)", "", item.key)


class Proxy(ThreadingHTTPServer):
    """Before an S3 at `upstream`. `plan` (method, path) decides about every request."""

    daemon_threads = True

    def __init__(self, upstream: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.plan: Plan = lambda method, path: "pass"
        self.seen: list[tuple[str, str]] = []
        self.released = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @contextlib.contextmanager
    def spoiling(self, fate: Fate, what: str = "", method: str = "") -> Iterator[None]:
        """Meanwhile this happens to requests whose path contains `what`."""

        def plan(seen: str, path: str) -> Fate:
            return fate if what in path and method in ("", seen) else "pass"

        self.plan, before = plan, self.plan
        try:
            yield
        finally:
            self.plan = before

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that gave up is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def _answer(self) -> None:
        self.server.seen.append((self.command, self.path))
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        fate = self.server.plan(self.command, self.path)
        if fate == "hang":
            self.server.released.wait(20)
            self.close_connection = True
            return
        if isinstance(fate, int):
            code = {403: "AccessDenied", 404: "NoSuchKey"}.get(fate, "InternalError")
            self._send(fate, {}, f"<Error><Code>{code}</Code></Error>".encode())
            return
        upstream = http.client.HTTPConnection(*self.server.upstream, timeout=20)
        upstream.request(self.command, self.path, body, dict(self.headers))
        answer = upstream.getresponse()
        data = answer.read()
        upstream.close()
        if fate == "lost answer":
            self.close_connection = True
            return
        kept = {k: v for k, v in answer.getheaders() if k.lower() not in _QUIET}
        self._send(answer.status, kept, data)

    def _send(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_PUT = do_DELETE = do_HEAD = do_POST = _answer


def make_bucket(address: str, name: str) -> None:
    assert httpx.put(f"{address}/{name}").status_code == 200


def eventually(check: Callable[[], bool], seconds: float = 5.0) -> float:
    """How long it took until it was so."""
    started = time.monotonic()
    while not check():
        assert time.monotonic() - started < seconds, f"not within {seconds} s"
        time.sleep(0.02)
    return time.monotonic() - started
