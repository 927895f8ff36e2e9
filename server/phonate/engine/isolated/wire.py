"""Frames over a pipe: what the server and the engine's process say to each other.

    u8 kind | u32 call | u32 length of fields | u32 length of body     little-endian, 13 bytes
    fields  a JSON object, or nothing
    body    raw bytes: audio as float32 little-endian, arrays as `values` has them

    server -> process                         process -> server
    BUILD     settings: make the engine       READY     info: it is made (and warm, if asked)
    SYNTHESIZE, EXTRACT, WARM_UP: a call      FAILED    error: it cannot be made; the process ends
    TOOK      the sink's answer to a CHUNK    CHUNK     audio of a call; the engine waits for TOOK
    CANCEL    a call's token is set           DONE, ERROR: a call's result
    CLOSE     free the engine and end         BEAT, LOG

A chunk is answered before the next one is made. So a sink that blocks holds the engine, as it does
in one process, nothing piles up, and one call's slow listener is not in the way of another call.
Nothing is unpickled, and lengths are checked: a process whose memory is spoiled can only be told
apart by what it sends.
"""

from __future__ import annotations

import json
import os
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import IO, Any

MAX_FIELDS = 16 * 2**20
MAX_BODY = 256 * 2**20
_HEADER = struct.Struct("<BIII")


class Kind(IntEnum):
    BUILD = 1
    SYNTHESIZE = 2
    EXTRACT = 3
    WARM_UP = 4
    TOOK = 5
    CANCEL = 6
    CLOSE = 7
    READY = 16
    FAILED = 17
    CHUNK = 18
    DONE = 19
    ERROR = 20
    BEAT = 21
    LOG = 22


class WireError(Exception):
    """What came is no frame."""


@dataclass(frozen=True, slots=True)
class Frame:
    kind: Kind
    call: int = 0
    fields: dict[str, Any] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)


class Outgoing:
    """The writing end, for any thread: each frame goes out whole.

    The pipe is closed under the same lock that writes hold, so that nothing is ever written to a
    file that got the number of a closed pipe.
    """

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def send(
        self, kind: Kind, call: int = 0, fields: Mapping[str, Any] | None = None, body: bytes = b""
    ) -> None:
        """Raises OSError when nobody reads any more."""
        text = json.dumps(fields).encode("ascii") if fields else b""
        data = memoryview(_HEADER.pack(kind, call, len(text), len(body)) + text + body)
        with self._lock:
            if self._pipe.closed:
                raise BrokenPipeError("the pipe is closed")
            while data:
                data = data[os.write(self._pipe.fileno(), data) :]

    def close(self) -> None:
        """Waits for a write that is under way."""
        with self._lock:
            self._pipe.close()


def read_frame(pipe: IO[bytes]) -> Frame | None:
    """The next frame; None at the end, also where that cuts a frame. Raises WireError."""
    head = pipe.read(_HEADER.size)
    if len(head) < _HEADER.size:
        return None
    number, call, n_fields, n_body = _HEADER.unpack(head)
    try:
        kind = Kind(number)
    except ValueError:
        raise WireError(f"there is no frame of kind {number}") from None
    if n_fields > MAX_FIELDS or n_body > MAX_BODY:
        raise WireError(f"a frame {kind.name} of {n_fields} + {n_body} bytes is too long")
    text = pipe.read(n_fields)
    body = bytearray(n_body)
    if len(text) < n_fields or _fill(pipe, body) < n_body:
        return None
    return Frame(kind, call, _object(text, kind), body)


def _fill(pipe: IO[bytes], body: bytearray) -> int:
    """Bytes that there were."""
    view, filled = memoryview(body), 0
    while filled < len(body):
        n = pipe.readinto(view[filled:])  # type: ignore[attr-defined]
        if not n:
            break
        filled += n
    return filled


def _object(text: bytes, kind: Kind) -> dict[str, Any]:
    if not text:
        return {}
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise WireError(f"the fields of {kind.name} are not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise WireError(f"the fields of {kind.name} are no object")
    return fields
