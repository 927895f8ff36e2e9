"""A hub on 127.0.0.1 that serves files the way the real one does, and can misbehave.

Only what huggingface_hub asks for when it downloads from one repository: HEAD and GET with Range on
/OWNER/REPO/resolve/REV/FILE, and the listing at /api/models/OWNER/REPO/....
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    repo: str
    files: dict[str, bytes]
    revisions: tuple[str, ...] = ("main", "v1")
    cut_after: list[int] = field(default_factory=list)
    """For each coming GET of a file: close the connection after that many bytes."""
    status: int | None = None
    """Answer everything with this."""
    error_code: str | None = None
    """X-Error-Code that goes with it."""
    seen: list[tuple[str, str, str | None]] = field(default_factory=list)
    """(method, path, Range) of each request."""
    url: str = ""

    def gets(self, name: str) -> list[str | None]:
        """The Range headers of all GETs of one file."""
        return [r for method, path, r in self.seen if method == "GET" and path.endswith(name)]


@contextmanager
def fake_hub(hub: FakeHub) -> Iterator[FakeHub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def log_message(self, *args: object) -> None:
            pass

        def _answer(self, *, body: bool) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.seen.append((self.command, path, self.headers.get("Range")))
            file = re.fullmatch(rf"/{hub.repo}/resolve/([^/]+)/(.+)", path)
            listing = re.match(rf"/api/models/{hub.repo}(/(revision|tree)/(?P<rev>[^/]+))?", path)
            if hub.status is not None:
                self._refuse(hub.status, hub.error_code or "")
            elif file and self._known(file[1]):
                self._file(file[2], body=body)
            elif listing and self._known(listing["rev"] or "main"):
                self._list(tree="/tree/" in path)
            elif not file and not listing:
                self._refuse(401, "RepoNotFound")

        def _known(self, revision: str) -> bool:
            if revision in {*hub.revisions, COMMIT}:
                return True
            self._refuse(404, "RevisionNotFound")
            return False

        def _refuse(self, status: int, code: str) -> None:
            self._send(status, {"X-Error-Code": code}, b"{}")

        def _list(self, *, tree: bool) -> None:
            entries = [
                {"type": "file", "path": n, "oid": "0", "size": len(b)}
                for n, b in hub.files.items()
            ]
            siblings = [{"rfilename": name} for name in hub.files]
            model = {"id": hub.repo, "sha": COMMIT, "siblings": siblings}
            self._send(
                200,
                {"Content-Type": "application/json"},
                json.dumps(entries if tree else model).encode(),
            )

        def _file(self, name: str, *, body: bool) -> None:
            data = hub.files.get(name)
            if data is None:
                self._refuse(404, "EntryNotFound")
                return
            headers = {
                "X-Repo-Commit": COMMIT,
                "ETag": f'"{hashlib.sha256(data).hexdigest()}"',
                "Accept-Ranges": "bytes",
            }
            wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
            if not (body and wanted):
                self._send(200, headers, data, cut=body)
                return
            first, last = int(wanted[1]), int(wanted[2] or len(data) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            self._send(206, headers, data[first : last + 1], cut=True)

        def _send(
            self, status: int, headers: dict[str, str], data: bytes, *, cut: bool = False
        ) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "HEAD":
                return
            if cut and hub.cut_after:
                self.wfile.write(data[: hub.cut_after.pop(0)])
                self.wfile.flush()
                self.close_connection = True
                return
            self.wfile.write(data)

    return Handler
