"""API keys: who is asking. A key is compared as bytes, in constant time, and never logged."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import os
import time
import urllib.parse
from collections.abc import Callable, Iterable
from pathlib import Path

from starlette.types import Scope

from phonate.errors import SetupError

log = logging.getLogger("phonate.keys")

SUBPROTOCOL_PREFIX = "bearer."
"""`Sec-WebSocket-Protocol: bearer.<base64url(key)>`: browsers cannot set a header."""

_LOOK_EVERY_S = 1.0


class Keys:
    """The keys of the options and of the key file, one a line, optionally `name:key`.

    The file is looked at again at most once a second and reread when it changed; a file that
    became unreadable leaves the last good keys in force.
    """

    def __init__(
        self,
        key: str | None = None,
        file: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fixed = {_digest(key.encode()): "default"} if key else {}
        self._file = file
        self._clock = clock
        self._stamp: tuple[int, int, int] | None = None
        self._from_file: dict[bytes, str] = {}
        self._looked = -_LOOK_EVERY_S
        if file is not None:
            try:
                self._read(file)
            except OSError as error:
                raise SetupError(
                    f"--api-key-file {file}: cannot be read ({error.strerror})."
                ) from None
            if not self._from_file:
                raise SetupError(f"--api-key-file {file}: there is no key in it.")

    @property
    def required(self) -> bool:
        """Whether any key is configured. A file that was emptied later locks everybody out."""
        return bool(self._fixed) or self._file is not None

    def owner_of(self, candidates: Iterable[bytes]) -> str | None:
        """The name of the first candidate that is a key; None if none is. Every key is compared
        with every candidate, so that the time tells nothing."""
        self._refresh()
        known = {**self._fixed, **self._from_file}
        found: str | None = None
        for candidate in candidates:
            digest = _digest(candidate)
            for key, name in known.items():
                if hmac.compare_digest(digest, key) and found is None:
                    found = name
        return found

    def reload(self) -> None:
        """Look at the file now (SIGHUP)."""
        self._looked = -_LOOK_EVERY_S
        self._stamp = None
        self._refresh()

    def _refresh(self) -> None:
        now = self._clock()
        if self._file is None or now - self._looked < _LOOK_EVERY_S:
            return
        self._looked = now
        try:
            self._read(self._file)
        except OSError as error:
            log.warning("--api-key-file cannot be read (%s); the last keys stay", error.strerror)

    def _read(self, file: Path) -> None:
        stat = os.stat(file)
        stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if stamp == self._stamp:
            return
        keys = {}
        for line in file.read_bytes().splitlines():
            name, key = _parse(line.strip())
            if key:
                keys[_digest(key)] = name
        if self._stamp is not None:
            log.info("--api-key-file was reread: %d keys", len(keys))
        self._from_file, self._stamp = keys, stamp


def _parse(line: bytes) -> tuple[str, bytes]:
    """`name:key`, or a bare key, which is named by its hash; `#` begins a comment line."""
    if not line or line.startswith(b"#"):
        return "", b""
    name, separator, key = line.partition(b":")
    if separator and key and name.strip():
        return name.strip().decode("utf-8", "replace"), key.strip()
    return "key-" + _digest(line).hex()[:8], line


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def presented(scope: Scope) -> list[bytes]:
    """The keys a request carries: the Bearer header, and for a WebSocket also the subprotocol
    and `?api_key=`. An empty Bearer (SillyTavern sends one) is no key."""
    found = []
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, token = value.partition(b" ")
            if kind.lower() == b"bearer" and token.strip():
                found.append(token.strip())
        elif name == b"sec-websocket-protocol" and scope["type"] == "websocket":
            found += [key for offer in value.split(b",") if (key := _from_subprotocol(offer))]
    if scope["type"] == "websocket":
        # Latin-1 both ways keeps the bytes as they were sent: keys may be in any script.
        query = scope.get("query_string", b"").decode("latin-1")
        values = urllib.parse.parse_qs(query, encoding="latin-1").get("api_key", [])
        found += [value.encode("latin-1") for value in values]
    return found


def _from_subprotocol(offer: bytes) -> bytes | None:
    text = offer.strip()
    prefix = SUBPROTOCOL_PREFIX.encode()
    if not text.startswith(prefix):
        return None
    encoded = text[len(prefix) :]
    try:
        return base64.b64decode(encoded + b"=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        return None
