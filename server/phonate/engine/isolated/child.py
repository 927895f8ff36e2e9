"""The process that an isolated engine lives in: `python -m phonate.engine.isolated.child FACTORY`.

FACTORY is "module:function"; the function makes the engine from (settings, model files). Frames
come in on standard input and go out on what was standard output (see `wire`). The process ends with
its input: it cannot outlive the server, however that ends.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import logging
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import IO, Any, TypeAlias

from phonate.engine.base import CancelToken, Engine, Samples
from phonate.engine.isolated import values
from phonate.engine.isolated.wire import Frame, Kind, Outgoing, read_frame
from phonate.engine.models.resolve import ResolvedModel
from phonate.settings import Settings

Factory: TypeAlias = Callable[[Settings, ResolvedModel | None], Engine]
_PR_SET_PDEATHSIG = 1


class _Call:
    """What the server can still say about a call that runs."""

    def __init__(self) -> None:
        self.token = CancelToken()
        self.took: queue.SimpleQueue[bool] = queue.SimpleQueue()


class Child:
    """Serves one engine over two pipes. `run` returns when the input ends or CLOSE came."""

    def __init__(self, frames: IO[bytes], out: Outgoing, factory: Factory) -> None:
        self._frames = frames
        self._out = out
        self._factory = factory
        self._engine: Engine | None = None
        self._calls: dict[int, _Call] = {}
        self._over = threading.Event()
        self._work: dict[Kind, Callable[[Frame, _Call], values.Packed]] = {
            Kind.SYNTHESIZE: self._synthesize,
            Kind.EXTRACT: self._extract,
            Kind.WARM_UP: self._warm_up,
        }

    def run(self) -> None:
        try:
            while (frame := read_frame(self._frames)) is not None:
                if frame.kind is Kind.CLOSE:
                    if self._engine is not None:
                        self._engine.close()
                    return
                self._take(frame)
        except OSError:
            pass  # the server is gone in the middle of an answer
        finally:
            self._over.set()

    def _take(self, frame: Frame) -> None:
        if frame.kind is Kind.BUILD:
            _start(self._beat, float(frame.fields["beat_s"]))
            _start(self._build, frame)
        elif frame.kind in self._work:
            call = self._calls[frame.call] = _Call()
            _start(self._serve, frame, call)
        elif (known := self._calls.get(frame.call)) is not None:
            if frame.kind is Kind.CANCEL:
                known.token.set(str(frame.fields["reason"]))
            elif frame.kind is Kind.TOOK:
                known.took.put(bool(frame.fields["more"]))

    def _beat(self, every_s: float) -> None:
        """A sign of life, unasked: to ask, the server would have to write to a process that
        perhaps does not read."""
        while not self._over.wait(every_s):
            self._send(Kind.BEAT)

    def _build(self, frame: Frame) -> None:
        try:
            settings = Settings(**frame.fields["settings"])
            engine = self._factory(settings, values.unpack_model(frame.fields["model"]))
            if frame.fields["warm"]:
                engine.warm_up()
        except BaseException as error:
            self._send(Kind.FAILED, fields=values.pack_error(error, traceback.format_exc()))
            return
        self._engine = engine
        self._send(Kind.READY, fields=values.pack_info(engine.info))

    def _serve(self, frame: Frame, call: _Call) -> None:
        try:
            fields, body = self._work[frame.kind](frame, call)
        except BaseException as error:
            fields, body = values.pack_error(error, traceback.format_exc()), b""
            kind = Kind.ERROR
        else:
            kind = Kind.DONE
        del self._calls[frame.call]
        self._send(kind, frame.call, fields, body)

    def _ready(self) -> Engine:
        assert self._engine is not None, "the server calls only after READY"
        return self._engine

    def _synthesize(self, frame: Frame, call: _Call) -> values.Packed:
        def sink(samples: Samples) -> bool:
            self._out.send(Kind.CHUNK, frame.call, body=values.pack_chunk(samples))
            return call.took.get()

        request = values.unpack_request(frame.fields["request"], frame.body)
        if frame.fields["cancelled"] is not None:
            call.token.set(frame.fields["cancelled"])
        return values.pack_result(self._ready().synthesize(request, sink, call.token)), b""

    def _extract(self, frame: Frame, call: _Call) -> values.Packed:
        audio, text = values.unpack_recording(frame.fields, frame.body)
        return values.pack_reference(self._ready().extract_voice(audio, text))

    def _warm_up(self, frame: Frame, call: _Call) -> values.Packed:
        self._ready().warm_up()
        return {}, b""

    def _send(
        self, kind: Kind, call: int = 0, fields: values.Fields | None = None, body: bytes = b""
    ) -> None:
        try:
            self._out.send(kind, call, fields, body)
        except OSError:
            self._over.set()  # the server is gone; `run` sees that too


class FrameHandler(logging.Handler):
    """What is logged here appears in the server's log, under its own logger and level."""

    def __init__(self, out: Outgoing) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s"))
        self._out = out

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
            fields = {"level": record.levelno, "logger": record.name, "message": text}
            self._out.send(Kind.LOG, fields=fields)
        except Exception:
            self.handleError(record)


def _start(work: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=work, args=arguments, name="phonate-child", daemon=True).start()


def load_factory(name: str) -> Factory:
    module, _, function = name.partition(":")
    factory: Factory = getattr(importlib.import_module(module), function)
    return factory


def end_with_parent() -> None:
    """The end of the input does it too, unless this process hangs or is stopped just then."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def stay_for_the_drain() -> None:
    """A service manager signals every process of a service, but the server still finishes its
    answers. It will tell; and children of ours do not inherit a handler that does nothing."""
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda *_: None)


def take_pipes() -> tuple[IO[bytes], Outgoing]:
    """Private copies: what a library prints must not get between the frames, nor may a process
    that it starts read them."""
    frames = os.fdopen(os.dup(0), "rb")
    out = Outgoing(os.fdopen(os.dup(1), "wb", buffering=0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return frames, out


def main() -> None:
    end_with_parent()
    stay_for_the_drain()
    faulthandler.enable()
    frames, out = take_pipes()
    handler = FrameHandler(out)
    logging.basicConfig(level=int(sys.argv[2]), handlers=[handler], force=True)
    sys.setswitchinterval(float(sys.argv[3]))
    Child(frames, out, load_factory(sys.argv[1])).run()
    # Not the interpreter's own end: threads are still in native code, which may be what hangs.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
