"""The server of `overhead`: a scripted engine at real time; its chunks tell when they were made."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace

import uvicorn
from overhead import stamp

from phonate.app import create_app
from phonate.engine.base import Samples
from phonate.engine.scripted import DEFAULT_INFO, FRAME_S, Emit, ScriptedEngine
from phonate.listen import bind
from phonate.serve import SWITCH_INTERVAL_S, uvicorn_config
from phonate.settings import load


class Stamped(Emit):
    """Chunks of one frame, each with the time of its making; deadlines are absolute, so that the
    engine keeps real time."""

    def chunks(self, sample_rate: int) -> Iterator[Samples]:
        due = time.monotonic()
        for _ in range(round(self.seconds / FRAME_S)):
            time.sleep(max(0.0, due - time.monotonic()))
            due += FRAME_S
            yield stamp(time.monotonic())


def main(clients: int, seconds: float) -> None:
    info = replace(DEFAULT_INFO, max_batch=clients)
    engine = ScriptedEngine(lambda request: [Stamped(seconds=seconds)], info)
    with tempfile.TemporaryDirectory() as voices:
        options = {
            "max_batch": str(min(clients, 64)),
            "voice_dir": voices,
            "trim_silence": False,
            "startup_buffer_ms": "0",
            "fragment_fade_out_after_ms": "60000",
        }
        settings = load(options, {}).settings
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        sock = bind("127.0.0.1", 0)
        sock.listen(256)
        print(f"listens on http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
        uvicorn.Server(uvicorn_config(create_app(settings, engine), settings)).run([sock])


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
