"""One native call: the struct it is given, the callbacks it makes, what came out.

The callbacks are C functions shared by all calls; a handle in their user data leads to the call.
They never raise: an exception is kept in the call, the library is told to stop, and whoever made
the call raises it afterwards, on the Python side of the border.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from phonate.engine.base import CancelToken, Samples, Sink
from phonate.engine.qwen.checks import Plan
from phonate.engine.qwen.library import Library, foreign

OK, CANCELLED = 0, -5
SAMPLES_PER_FRAME = 1920
FLOW_CANCEL, FLOW_GO, FLOW_WAIT = 0, 1, 2
FINISH_LENGTH, FINISH_LOOP = 2, 4

STATUS = {
    0: "OK",
    -1: "INVALID_PARAMS",
    -2: "MODE_INVALID",
    -3: "GENERATE_FAILED",
    -4: "OOM",
    -5: "CANCELLED",
}


@dataclass(frozen=True, slots=True)
class OnsetSilence:
    """Codes that may not begin an utterance, so that a cloned voice does not hesitate first.
    Belongs to one pair of files; who made sure that these are the ones is not asked here."""

    ids: tuple[int, ...]
    """Values of code 0, 0..2047."""
    n_frames: int
    """For how many frames at the start."""


@dataclass(frozen=True, slots=True)
class Outcome:
    status: int
    message: str
    """Why it failed, "" when it did not or nobody knows."""
    n_frames: int
    n_text_tokens: int | None
    length_reached: bool


class Call:
    """A synthesis under way. `take` and `should_stop` are what the callbacks ask."""

    def __init__(
        self,
        sink: Sink,
        token: CancelToken,
        closing: threading.Event,
        may_go: Callable[[], bool] = lambda: True,
    ) -> None:
        self._sink = sink
        self._token = token
        self._closing = closing
        self._may_go = may_go
        """False while the library should make no more; asked by flow only."""
        self.error: BaseException | None = None
        self.refused = False
        """The sink wanted no more."""
        self.n_samples = 0

    @property
    def unwanted(self) -> bool:
        """The caller's wish, as opposed to a failure or the end of the engine."""
        return self.refused or self._token.is_set

    def should_stop(self) -> bool:
        return self.unwanted or self.error is not None or self._closing.is_set()

    def take(self, samples: Samples) -> bool:
        if self.should_stop():
            return False
        self.n_samples += len(samples)
        if not self._sink(samples):
            self.refused = True
        return not self.should_stop()

    def flow(self) -> int:
        if self.should_stop():
            return FLOW_CANCEL
        return FLOW_GO if self._may_go() else FLOW_WAIT


@functools.cache
def _callbacks() -> tuple[Any, Any, Any]:
    """(cancel, on_chunk, flow) as C functions, made once and kept."""
    ffi = foreign()

    def guarded(handle: Any, ask: Callable[[Call], Any], stop: Any) -> Any:
        call: Call = ffi.from_handle(handle)
        try:
            return ask(call)
        except BaseException as exc:  # kept, and raised by the caller: nothing unwinds into C
            call.error = exc
            return stop

    def cancel(handle: Any) -> Any:
        return guarded(handle, Call.should_stop, True)

    def on_chunk(samples: Any, n_samples: int, handle: Any) -> Any:
        def take(call: Call) -> bool:
            raw = ffi.buffer(samples, n_samples * 4)
            return call.take(np.frombuffer(raw, dtype=np.float32).copy())

        return guarded(handle, take, False)

    def flow(handle: Any) -> Any:
        return guarded(handle, Call.flow, FLOW_CANCEL)

    return (
        ffi.callback("qt_cancel_cb", cancel, error=True),
        ffi.callback("qt_audio_chunk_cb", on_chunk, error=False),
        ffi.callback("qt_flow_cb", flow, error=FLOW_CANCEL),
    )


class TtsParams:
    """A filled qt_tts_params and everything it points at, alive as long as this object."""

    def __init__(
        self, library: Library, plan: Plan, call: Call, onset: OnsetSilence | None
    ) -> None:
        ffi = foreign()
        self._alive: list[Any] = []
        self.handle = ffi.new_handle(call)
        self.struct = params = ffi.new("qt_tts_params *")
        library.lib.qt_tts_default_params(params)
        params.text = self._string(plan.text)
        params.lang = self._string(plan.language)
        params.instruct = self._string(plan.instructions)
        params.speaker = self._string(plan.speaker)
        params.seed = plan.seed
        params.max_new_tokens = plan.max_new_tokens
        for name, value in plan.sampling.items():
            setattr(params, name, value)
        if plan.embedding is not None:
            params.ref_spk_emb = self._array("float *", plan.embedding)
            params.ref_spk_dim = plan.embedding.shape[0]
        if plan.codes is not None:
            params.ref_codes = self._array("int32_t *", plan.codes)
            params.ref_T = plan.codes.shape[1]
            params.ref_text = self._string(plan.reference_text)
        params.cancel, params.on_chunk, flow = _callbacks()
        params.cancel_user_data = params.on_chunk_user_data = self.handle
        x_vector_only = plan.embedding is not None and plan.codes is None
        if onset is not None and x_vector_only:
            params.onset_silence_ids = self._array("int32_t *", np.array(onset.ids, dtype=np.int32))
            params.onset_silence_id_count = len(onset.ids)
            params.onset_silence_ban_frames = onset.n_frames
        if library.abi >= 6:
            params.text_layout = plan.text_layout
            params.first_chunk_frames = plan.first_chunk_frames
            params.flow = flow
            params.flow_user_data = self.handle

    def _string(self, text: str | None) -> Any:
        if text is None:
            return foreign().NULL
        data = foreign().new("char[]", text.encode("utf-8"))
        self._alive.append(data)
        return data

    def _array(self, kind: str, array: Any) -> Any:
        self._alive.append(array)
        return foreign().cast(kind, array.ctypes.data)


def synthesize(
    library: Library, context: Any, plan: Plan, call: Call, onset: OnsetSilence | None
) -> Outcome:
    """Makes the call on this thread; the audio goes to `call`, never into a buffer: the tail of
    a buffered call cannot be cancelled on qwentts.cpp."""
    ffi = foreign()
    params = TtsParams(library, plan, call, onset)
    audio = ffi.new("qt_audio *")
    before = library.last_error()
    library.log.forget_error()
    status = library.lib.qt_synthesize(context, params.struct, audio)
    message = reason(library, status, before)
    library.lib.qt_audio_free(audio)
    n_frames = -(-call.n_samples // SAMPLES_PER_FRAME)
    if not library.traits.reports_results:
        return Outcome(status, message, n_frames, None, n_frames >= plan.max_new_tokens)
    result = library.lib.qt_last_result()
    return Outcome(
        status,
        message,
        result.n_frames,
        result.n_text_tokens,
        result.finish_reason in (FINISH_LENGTH, FINISH_LOOP),
    )


def reason(library: Library, status: int, error_before: str) -> str:
    """Why a call on this thread failed. qwentts.cpp often leaves the message of an earlier call,
    and tells the reason only in its log."""
    if status == OK:
        return ""
    message = library.last_error()
    if message and (library.traits.reports_results or message != error_before):
        return message
    return library.log.error_of_call() or message


def extract(library: Library, context: Any, audio: Samples) -> tuple[int, str, Samples | None, Any]:
    """(status, message, embedding [dim], codes int32 [n_codebooks, T]); the arrays are copies."""
    ffi = foreign()
    out = ffi.new("qt_voice_ref *")
    before = library.last_error()
    library.log.forget_error()
    status = library.lib.qt_extract_voice_ref(
        context, ffi.cast("float *", audio.ctypes.data), len(audio), out
    )
    message = reason(library, status, before)
    embedding = codes = None
    if status == OK and out.ref_spk_emb and out.ref_codes:
        embedding = _copy(out.ref_spk_emb, (out.ref_spk_dim,), np.float32)
        codes = _copy(out.ref_codes, (out.num_codebooks, out.ref_T), np.int32)
    library.lib.qt_voice_ref_free(out)
    return status, message, embedding, codes


def _copy(pointer: Any, shape: tuple[int, ...], dtype: type) -> Any:
    n_bytes = int(np.prod(shape)) * 4
    return np.frombuffer(foreign().buffer(pointer, n_bytes), dtype=dtype).reshape(shape).copy()
