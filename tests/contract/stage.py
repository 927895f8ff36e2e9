"""`phonate serve` around an engine that does what a text says: run by PHONATE_PYTHON.

    endless ...   a tone in real time, until somebody stops it
    cut ...       a second of tone, then the engine fails
    broken ...    the engine fails before there is a sound
    anything      a tone

It can clone, too. What clients do when things go wrong is seen with it.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

from phonate import serve, settings
from phonate.engine.base import SynthesisRequest
from phonate.engine.scripted import DEFAULT_INFO, FRAME_S, Emit, Fail, ScriptedEngine, Step
from phonate.errors import EngineFailure


def script(request: SynthesisRequest) -> list[Step] | None:
    if request.text.startswith("endless"):
        return [Emit.tone(math.inf, pace_s=FRAME_S)]
    if request.text.startswith("cut"):
        return [Emit.tone(1.0), Fail(EngineFailure("The engine fell over."))]
    if request.text.startswith("broken"):
        return [Fail(EngineFailure("The engine fell over."))]
    return None


if __name__ == "__main__":
    info = replace(DEFAULT_INFO, can_clone=True, can_icl=True, embedding_dim=16)
    serve.create_engine = lambda *_: ScriptedEngine(script, info)
    flags = {"port": 0, "voice_dir": Path(sys.argv[1]), "log_level": "warning"}
    serve.serve(settings.load(flags, {}).settings)
