"""People who talk to the fleet: listeners in threads, and steady short requests."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import httpx
from cluster import PATIENCE_S, Cluster

PCM_PER_S = 48_000


def body(text: str) -> dict[str, Any]:
    return {"input": text, "response_format": "pcm", "seed": 1}


class Listener(threading.Thread):
    """One streamed answer, in a thread. `leave` hangs up in the middle."""

    def __init__(self, cluster: Cluster, text: str) -> None:
        super().__init__(daemon=True)
        self._url = cluster.url
        self._text = text
        self._leave = threading.Event()
        self.status = 0
        self.headers = httpx.Headers()
        self.content = b""
        self.first_s = self.whole_s = 0.0
        self.left_at = 0.0
        self.error: Exception | None = None
        """A transfer that broke. None: it came to a clean end."""
        self.start()

    def run(self) -> None:
        began = time.monotonic()
        pieces: list[bytes] = []
        try:
            with httpx.stream(
                "POST", f"{self._url}/v1/audio/speech", json=body(self._text), timeout=PATIENCE_S
            ) as answer:
                self.headers = answer.headers
                self.status = answer.status_code
                for piece in answer.iter_raw():
                    self.first_s = self.first_s or time.monotonic() - began
                    pieces.append(piece)
                    if self._leave.is_set():
                        break
        except httpx.TransportError as error:
            self.error = error
        self.left_at = time.time()
        self.whole_s = time.monotonic() - began
        self.content = b"".join(pieces)

    def leave(self) -> None:
        """At the next piece; a request that still waits leaves when it is its turn."""
        self._leave.set()

    def done(self) -> Listener:
        self.join(PATIENCE_S)
        assert not self.is_alive(), "the answer does not end"
        return self


@dataclass
class Load:
    """Short requests, one after the other, for as long as the block lasts."""

    cluster: Cluster
    results: list[tuple[float, int, str]] = field(default_factory=list)
    """When each was asked, its status (0: none), and what was wrong."""

    def __enter__(self) -> Load:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join(PATIENCE_S)

    def _work(self) -> None:
        with httpx.Client(base_url=self.cluster.url, timeout=PATIENCE_S) as client:
            while not self._over.wait(0.05):
                asked = time.monotonic()
                try:
                    answer = client.post("/v1/audio/speech", json=body("Hello."))
                except httpx.TransportError as error:
                    self.results.append((asked, 0, repr(error)))
                else:
                    wrong = "" if answer.status_code == 200 else answer.text
                    self.results.append((asked, answer.status_code, wrong))

    def statuses(self, since: float = 0) -> Counter[int]:
        return Counter(status for asked, status, _ in self.results if asked >= since)
