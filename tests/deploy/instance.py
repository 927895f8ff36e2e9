"""`phonate serve`, but on the scripted engine: the text `slow N` takes N seconds, in real time.

python instance.py PORT VOICE_DIR
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from phonate import serve, settings
from phonate.engine.base import SynthesisRequest
from phonate.engine.scripted import FRAME_S, Emit, ScriptedEngine, Step


def script(request: SynthesisRequest) -> Sequence[Step] | None:
    found = re.search(r"slow (\d+)", request.text)
    return [Emit.tone(float(found[1]), pace_s=FRAME_S)] if found else None


def main(port: str, voice_dir: str) -> None:
    serve.create_engine = lambda *_: ScriptedEngine(script)
    options = {
        "port": port, "voice_dir": voice_dir, "max_batch": "8", "log_format": "json",
        "proxy_headers": "true", "trusted_proxy": ["127.0.0.1"],
    }  # fmt: skip
    serve.serve(settings.load(options, {}).settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
