"""The process that Pico runs in: `python -m phonate.engine.builtin.pico_worker`.

Pico holds the interpreter's lock while it speaks, hangs on some texts (500 ones in a row) and
cannot be stopped. In a process of its own none of that reaches the server: it is killed instead.

stdin:  one JSON object a line, {"text": str, "voice": "de-DE"}.
stdout: one JSON object a line, {"pcm": base64 of s16le mono 16 kHz} or {"error": str}.
Ends with its stdin.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import signal
import sys
from typing import BinaryIO

MAX_SECONDS = 20
"""Kills a hanging process even when nobody is left to do it; a piece takes 0.3 s."""
VOLUME = 0.5
"""At its own level Pico clips; at half of it no voice does."""
_M_MMAP_THRESHOLD = -3
_MMAP_FROM_BYTES = 1 << 20


def keep_memory_fresh() -> None:
    """Make the same text sound the same every time.

    Pico reads parts of its 2.5 MB working memory that it never wrote. The first block malloc hands
    out is fresh from the system, all zeros; after some frees glibc begins to hand out used ones,
    and melody and length change from call to call. With a fixed threshold every block of that
    size is fresh. Other C libraries take large blocks from the system anyway.
    """
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018 - only glibc has it, and this constant
        libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_FROM_BYTES)
    except (AttributeError, OSError, TypeError):
        pass


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    from py_nanotts import NanoTTS

    tts = NanoTTS()
    for line in requests:
        request = json.loads(line)
        if hasattr(signal, "alarm"):
            signal.alarm(MAX_SECONDS)
        try:
            pcm = tts.speak(request["text"], voice=request["voice"], volume=VOLUME)
            reply = {"pcm": base64.b64encode(pcm).decode("ascii")}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        if hasattr(signal, "alarm"):
            signal.alarm(0)
        replies.write(json.dumps(reply).encode("ascii") + b"\n")
        replies.flush()


def main() -> None:
    # What a library prints must not get between the replies.
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    keep_memory_fresh()
    serve(sys.stdin.buffer, replies)


if __name__ == "__main__":
    main()
