"""A real server in a thread, for tests that want sockets."""

from __future__ import annotations

import contextlib
import io
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import av
import numpy as np
import soundfile
import uvicorn

from phonate import settings
from phonate.app import create_app
from phonate.engine.base import Engine
from phonate.listen import bind
from phonate.serve import uvicorn_config


@dataclass
class Running:
    address: str
    engine: Any
    app: Any
    server: uvicorn.Server

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def service(self) -> Any:
        return self.app.state.phonate.service


@contextlib.contextmanager
def running(engine: Engine, *, tracing: Any = None, **options: Any) -> Iterator[Running]:
    """`options` are settings by name, as the command line would give them."""
    with contextlib.ExitStack() as stack:
        if "voice_dir" not in options:
            options["voice_dir"] = stack.enter_context(tempfile.TemporaryDirectory())
        yield from _run(engine, settings.load(options, {}).settings, tracing)


def _run(engine: Engine, effective: settings.Settings, tracing: Any) -> Iterator[Running]:
    app = create_app(effective, engine, tracing)
    sock = bind("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn_config(app, effective))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    until = time.monotonic() + 30
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        assert time.monotonic() < until, "the server did not start in time"
        time.sleep(0.005)
    try:
        yield Running(f"http://127.0.0.1:{sock.getsockname()[1]}", engine, app, server)
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), "the server did not stop"


def decode(data: bytes) -> tuple[np.ndarray, int]:
    """float32 [n] mono and the sample rate, by libsndfile; by FFmpeg what that cannot read (AAC,
    and a streamed FLAC, whose header does not say how long it is)."""
    try:
        samples, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    except (soundfile.LibsndfileError, ValueError):
        with av.open(io.BytesIO(data)) as container:
            frames = [frame.to_ndarray() for frame in container.decode(audio=0)]
            rate = container.streams.audio[0].rate
        samples = np.concatenate(frames, axis=1).T
        if samples.dtype.kind == "i":
            samples = samples.astype(np.float32) / np.iinfo(samples.dtype).max
    assert samples.shape[1] == 1
    return samples[:, 0].astype(np.float32), rate


def pcm_floats(data: bytes) -> np.ndarray:
    assert len(data) % 2 == 0
    return np.frombuffer(data, "<i2").astype(np.float32) / 32768


def loudest_hz(samples: np.ndarray, rate: int) -> float:
    """Frequency of the strongest component."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum) * rate / len(samples))
