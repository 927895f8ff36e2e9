"""`phonate serve` around the scripted engine, as a process of its own: for signals and logs.

    python scripted_server.py serve --port 0 ...

Texts that begin with these words do what they say:

    slow    two seconds of speech, a frame every 20 ms
    long    a minute of it
    hang    one frame, then the engine never comes back
    fail    the engine refuses, in words of its own
    crash   it raises something that quotes the text
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from phonate import cli, serve
from phonate.engine.base import SynthesisRequest
from phonate.engine.scripted import Emit, Fail, Hang, ScriptedEngine, Step
from phonate.errors import EngineFailure

NEVER = threading.Event()


def script(request: SynthesisRequest) -> Sequence[Step] | None:
    first = request.text.split(maxsplit=1)[0].lower().strip(".,")
    return {
        "slow": [Emit.tone(2, pace_s=0.02)],
        "long": [Emit.tone(60, pace_s=0.02)],
        "hang": [Emit.tone(0.32), Hang(NEVER)],
        "fail": [Fail(EngineFailure("It is out of memory."))],
        "crash": [Fail(ValueError(f"cannot speak {request.text!r}"))],
    }.get(first)


if __name__ == "__main__":
    serve.create_engine = lambda settings, progress=None: ScriptedEngine(script)  # type: ignore
    cli.main()
