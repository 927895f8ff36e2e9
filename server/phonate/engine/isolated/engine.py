"""An `Engine` whose work is done in another process.

What it adds to the engine inside: a call fails with EngineDied when the process dies under it, one
that comes while a new process starts waits for that (or raises Busy), and `vitals` tell.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from phonate.engine.base import (
    CancelToken,
    EngineInfo,
    Reference,
    Samples,
    Sink,
    SynthesisRequest,
    SynthesisResult,
    Vitals,
)
from phonate.engine.isolated import values
from phonate.engine.isolated.process import RemoteCall, launch
from phonate.engine.isolated.supervisor import POLL_S, Launch, Supervisor, Timing
from phonate.engine.isolated.wire import Frame, Kind
from phonate.engine.models.resolve import ResolvedModel
from phonate.errors import EngineDied
from phonate.settings import Settings, secret_names

Unspoken: TypeAlias = Callable[[str, str | None], str]
FACTORY = "phonate.engine.choose:build_engine"


def _speaks_all(text: str, speaker: str | None) -> str:
    return ""


class IsolatedEngine:
    """Starts the process in the constructor; raises what building the engine raised there.

    factory: what the process calls, with `settings` and `model`. unspoken: `Engine.unspoken` of
    that engine. It is answered here, since the edge asks on its loop and cannot wait for a process.
    """

    def __init__(
        self,
        settings: Settings,
        model: ResolvedModel | None = None,
        *,
        factory: str = FACTORY,
        unspoken: Unspoken = _speaks_all,
        timing: Timing | None = None,
        launcher: Launch | None = None,
    ) -> None:
        self._settings = settings
        self._unspoken = unspoken
        timing = timing or Timing(silent=min(Timing().silent, settings.stall_timeout))
        build = {
            "settings": _for_the_process(settings),
            "model": values.pack_model(model),
            "beat_s": timing.beat,
            "warm": False,
        }
        self._supervisor = Supervisor(launcher or partial(launch, factory), build, timing)
        try:
            self._info = self._supervisor.start()
        except BaseException:
            self._supervisor.close()
            raise

    @property
    def info(self) -> EngineInfo:
        return self._info

    @property
    def vitals(self) -> Vitals:
        return self._supervisor.vitals

    def synthesize(
        self, request: SynthesisRequest, sink: Sink, token: CancelToken
    ) -> SynthesisResult:
        process = self._supervisor.running(token)
        if process is None:
            return SynthesisResult("cancelled", 0, 0, request.seed)
        fields, body = values.pack_request(request)
        # With the request, not behind it: by then there might be a chunk.
        told = {"request": fields, "cancelled": token.reason if token.is_set else None}
        call = process.call(Kind.SYNTHESIZE, (told, body), self._settings.stall_timeout)
        try:
            return values.unpack_result(_Listening(call, sink, token).until_done().fields)
        except EngineDied:
            if token.is_set:
                return SynthesisResult("cancelled", 0, 0, request.seed)
            raise
        finally:
            process.finish(call)

    def unspoken(self, text: str, speaker: str | None) -> str:
        return self._unspoken(text, speaker)

    def extract_voice(self, audio: Samples, text: str | None) -> Reference:
        done = self._ask(Kind.EXTRACT, values.pack_recording(audio, text))
        return values.unpack_reference(done.fields, done.body)

    def warm_up(self) -> None:
        self._supervisor.keep_warm()
        self._ask(Kind.WARM_UP, ({}, b""))

    def close(self) -> None:
        self._supervisor.close()

    def _ask(self, kind: Kind, packed: values.Packed) -> Frame:
        """A call without chunks."""
        process = self._supervisor.running()
        assert process is not None, "only a token makes it None"
        # Nothing tells how far it is, so it may take as long as any request may.
        patience_s = self._settings.stall_timeout + self._settings.synthesis_timeout
        call = process.call(kind, packed, patience_s)
        try:
            frame = call.next()
        finally:
            process.finish(call)
        assert frame is not None, "without a timeout there is a frame"
        if frame.kind is Kind.ERROR:
            raise values.unpack_error(frame.fields)
        return frame


class _Listening:
    """The loop of one synthesis on this side: chunks to the sink, the token to the process."""

    def __init__(self, call: RemoteCall, sink: Sink, token: CancelToken) -> None:
        self._call = call
        self._sink = sink
        self._token = token
        self._told = False
        self._sink_error: BaseException | None = None

    def until_done(self) -> Frame:
        """DONE. Raises what the engine, the sink or the end of the process raised."""
        while True:
            frame = self._call.next(POLL_S)
            self._pass_cancel_on()
            if frame is None:
                continue
            if frame.kind is Kind.CHUNK:
                more = self._sunk(frame)
                # First the token: an engine looks at it before its next chunk.
                self._pass_cancel_on()
                self._call.took(more)
                continue
            if self._sink_error is not None:
                raise self._sink_error
            if frame.kind is Kind.ERROR:
                raise values.unpack_error(frame.fields)
            return frame

    def _sunk(self, frame: Frame) -> bool:
        try:
            return self._sink_error is None and self._sink(values.unpack_chunk(frame.body))
        except BaseException as error:  # not the engine's: it stops, and the caller gets it back
            self._sink_error = error
            return False

    def _pass_cancel_on(self) -> None:
        if self._token.is_set and not self._told:
            self._told = True
            self._call.cancel(self._token.reason or "cancelled")


def _for_the_process(settings: Settings) -> values.Fields:
    """All but the keys, which are none of its business; and it isolates nothing further."""
    fields = settings.model_dump(mode="json", exclude=set(secret_names()))
    return {**fields, "isolate_engine": False}
