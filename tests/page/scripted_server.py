"""A server around the scripted engine, for states that have to be forced.

    python scripted_server.py '{"api_key": "sesame"}'      settings by name

prints where it listens and runs until its standard input is closed. It can clone and takes
instructions. A text that begins with

    Slowly      is made as fast as it is heard, so a pause finds the engine at work
    Broken      fails
    Silent      comes without a sound
"""

import dataclasses
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support import running

from phonate.engine.scripted import DEFAULT_INFO, Emit, Fail, ScriptedEngine, duration_of
from phonate.errors import EngineFailure

INFO = dataclasses.replace(
    DEFAULT_INFO, can_clone=True, can_icl=True, can_instruct=True, embedding_dim=64
)


def script(request):
    word = request.text.split()[0].strip(",.:")
    if word == "Slowly":
        return [Emit.tone(duration_of(request.text), 330.0, pace_s=0.08)]
    if word == "Broken":
        return [Fail(EngineFailure("The model broke."))]
    if word == "Silent":
        return [Emit.silence(1.0)]
    return None


with running(ScriptedEngine(script, INFO), **json.loads(sys.argv[1])) as server:
    print(f"phonate listens on {server.address}", flush=True)
    sys.stdin.read()
