"""The engine for tests: it speaks tones, and does what a script says.

    engine = ScriptedEngine()                                  # a tone for every text
    engine = ScriptedEngine({"slow": [Emit.tone(0.1), Wait(2), Emit.tone(0.1)],
                             "bad": [Fail(EngineFailure("boom"))]})
    engine = ScriptedEngine(lambda request: [Emit.silence(0.3)] if request.seed == 1 else None)

Without a script (or where it has nothing for a text) the answer is a tone of `frequency_of(text)`
Hz and `duration_of(text)` seconds in chunks of one 80 ms frame, so that many parallel answers can
be told apart. Like a real engine it honours `max_new_tokens` (finish_reason "length"), looks at
its token before every chunk, and refuses what its info rules out. `engine.calls` tells what
happened, unless `remember` is False: thousands of calls would look like a leak. Thread safe; the
same request always gives the same samples.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from phonate.engine.base import (
    CancelToken,
    EngineInfo,
    FinishReason,
    Reference,
    Samples,
    Sink,
    Speaker,
    SynthesisRequest,
    SynthesisResult,
)
from phonate.engine.check import check_request
from phonate.errors import EngineFailure, UnsupportedOperation

FRAME_S = 0.08
SECONDS_PER_CHAR = 0.06
"""About the pace of speech: 16 characters a second."""
LEVEL = 0.25

DEFAULT_INFO = EngineInfo(
    name="scripted",
    model="scripted",
    device="cpu",
    sample_rate=24_000,
    languages=("english", "german", "french", "chinese"),
    speakers=(Speaker("tone", "Tone", "english"), Speaker("ton", "Ton", "german")),
    default_speaker="tone",
)


def frequency_of(text: str) -> int:
    """Hz of the default answer to `text`: a whole number within 220..3019."""
    return 220 + zlib.crc32(text.encode("utf-8", "surrogatepass")) % 2800


def duration_of(text: str) -> float:
    """Seconds of the default answer to `text`, a whole number of frames, at least two."""
    return max(2, math.ceil(len(text) * SECONDS_PER_CHAR / FRAME_S)) * FRAME_S


@dataclass(frozen=True, eq=False)
class Emit:
    """Hand audio to the sink: `samples` as they are, or `seconds` of a tone or of one value.

    chunk_s: length of one chunk, None = all in one. pace_s: wait after each chunk (ends early
    when the token is set). `seconds` may be infinite: a model that never says stop.
    """

    samples: Samples | None = None
    seconds: float = 0.0
    hz: float = 0.0
    level: float = LEVEL
    fill: float | None = None
    chunk_s: float | None = FRAME_S
    pace_s: float = 0.0

    @classmethod
    def tone(
        cls, seconds: float, hz: float = 440.0, level: float = LEVEL, *, pace_s: float = 0.0
    ) -> Emit:
        return cls(seconds=seconds, hz=hz, level=level, pace_s=pace_s)

    @classmethod
    def silence(cls, seconds: float, *, pace_s: float = 0.0) -> Emit:
        return cls(seconds=seconds, fill=0.0, pace_s=pace_s)

    @classmethod
    def constant(cls, seconds: float, value: float) -> Emit:
        """Every sample is `value`: NaN, an infinity, a level out of range."""
        return cls(seconds=seconds, fill=value)

    @classmethod
    def nan(cls, seconds: float) -> Emit:
        return cls.constant(seconds, math.nan)

    def chunks(self, sample_rate: int) -> Iterator[Samples]:
        """float32 [n] pieces; their concatenation does not depend on `chunk_s`."""
        total = len(self.samples) if self.samples is not None else self.seconds * sample_rate
        total = total if math.isinf(total) else round(total)
        step = round((self.chunk_s or FRAME_S) * sample_rate)
        if self.chunk_s is None and not math.isinf(total):
            step = max(1, int(total))
        start = 0
        while start < total:
            stop = start + step if math.isinf(total) else min(start + step, int(total))
            yield self._piece(start, stop, sample_rate)
            start = stop

    def _piece(self, start: int, stop: int, sample_rate: int) -> Samples:
        if self.samples is not None:
            return np.asarray(self.samples[start:stop], dtype=np.float32)
        if self.fill is not None:
            return np.full(stop - start, self.fill, dtype=np.float32)
        phase = 2 * np.pi * self.hz / sample_rate * np.arange(start, stop)
        return np.asarray(self.level * np.sin(phase), dtype=np.float32)


@dataclass(frozen=True)
class Wait:
    """Do nothing for a while. Not cancellable = an engine stuck in one long kernel."""

    seconds: float
    cancellable: bool = True


@dataclass(frozen=True)
class Fail:
    """Raise `error`, at this point of the script."""

    error: BaseException


@dataclass(frozen=True, eq=False)
class Hang:
    """Sit until `until` is set; `reached` is set on arrival. Deaf to the token unless told."""

    until: threading.Event
    reached: threading.Event = field(default_factory=threading.Event)
    cancellable: bool = False


@dataclass(frozen=True)
class Finish:
    """End here, with this reason. The end of a script is Finish("stop")."""

    reason: FinishReason = "stop"


Step: TypeAlias = Emit | Wait | Fail | Hang | Finish
Script: TypeAlias = (
    Mapping[str, Sequence[Step]] | Callable[[SynthesisRequest], Sequence[Step] | None]
)


@dataclass(eq=False)
class Call:
    """One `synthesize`, as a test wants to see it. Complete once `done` is set."""

    index: int
    request: SynthesisRequest
    thread: str
    n_chunks: int = 0
    n_samples: int = 0
    finish_reason: FinishReason | None = None
    error: BaseException | None = None
    cancelled: bool = False
    """The token was set, or the sink said no, while it ran."""
    sink_refused: bool = False
    done: threading.Event = field(default_factory=threading.Event)


class _Stop(Exception):
    def __init__(self, reason: FinishReason) -> None:
        self.reason: FinishReason = reason


class ScriptedEngine:
    """See the module's text. `info` replaces DEFAULT_INFO (use dataclasses.replace on it)."""

    def __init__(
        self,
        script: Script | None = None,
        info: EngineInfo = DEFAULT_INFO,
        *,
        warm_up: Sequence[Step] = (),
        remember: bool = True,
    ) -> None:
        self._script = script
        self._remember = remember
        self._n_calls = 0
        self._info = info
        self._warm_up_steps = warm_up
        self._changed = threading.Condition()
        self.calls: list[Call] = []
        """In the order in which they started."""
        self.finished: list[int] = []
        """Indices into `calls`, in the order in which they ended."""
        self.extracted: list[tuple[int, str | None]] = []
        """(number of samples, transcript) of every extract_voice."""
        self.in_flight = 0
        self.max_in_flight = 0
        self.n_warm_ups = 0
        self.closed = False

    @property
    def info(self) -> EngineInfo:
        return self._info

    @property
    def texts(self) -> list[str]:
        return [call.request.text for call in self.calls]

    def wait_for_calls(self, n: int, timeout_s: float = 5.0) -> bool:
        """Until `n` calls have started; False when they have not in time."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.calls) >= n, timeout_s)

    def wait_until_idle(self, timeout_s: float = 5.0) -> bool:
        """Until no call is running; False when one still is."""
        with self._changed:
            return self._changed.wait_for(lambda: self.in_flight == 0, timeout_s)

    def synthesize(
        self, request: SynthesisRequest, sink: Sink, token: CancelToken
    ) -> SynthesisResult:
        call = self._begin(request)
        try:
            if self.closed:
                raise EngineFailure("The engine is closed.")
            check_request(self._info, request)
            call.finish_reason = self._perform(call, sink, token)
        except BaseException as error:
            call.error = error
            raise
        finally:
            self._end(call, token)
        frame = self._info.sample_rate / self._info.frame_rate
        return SynthesisResult(
            finish_reason=call.finish_reason,
            n_frames=math.ceil(call.n_samples / frame),
            n_text_tokens=len(request.text.split()),
            seed=request.seed,
        )

    def unspoken(self, text: str, speaker: str | None) -> str:
        return ""

    def extract_voice(self, audio: Samples, text: str | None) -> Reference:
        if not self._info.can_clone:
            raise UnsupportedOperation(
                f"The model {self._info.model!r} cannot clone a voice.", param="voice"
            )
        if self._remember:
            self.extracted.append((len(audio), text))
        digest = hashlib.sha256(np.ascontiguousarray(audio, dtype="<f4").tobytes()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
        embedding = rng.standard_normal(self._info.embedding_dim).astype(np.float32)
        if text is None or not self._info.can_icl:
            return Reference(embedding)
        n_frames = math.ceil(len(audio) / self._info.sample_rate * self._info.frame_rate)
        codes = rng.integers(0, 2048, size=(n_frames, 16), dtype=np.int32)
        return Reference(embedding, codes, text)

    def warm_up(self) -> None:
        self.n_warm_ups += 1
        for step in self._warm_up_steps:
            if not isinstance(step, Emit | Finish):
                _pause(step, CancelToken())

    def close(self) -> None:
        self.closed = True

    def _begin(self, request: SynthesisRequest) -> Call:
        with self._changed:
            call = Call(self._n_calls, request, threading.current_thread().name)
            self._n_calls += 1
            if self._remember:
                self.calls.append(call)
            self.in_flight += 1
            self.max_in_flight = max(self.max_in_flight, self.in_flight)
            self._changed.notify_all()
        return call

    def _end(self, call: Call, token: CancelToken) -> None:
        with self._changed:
            call.cancelled = token.is_set or call.sink_refused
            if self._remember:
                self.finished.append(call.index)
            self.in_flight -= 1
            call.done.set()
            self._changed.notify_all()

    def _steps(self, request: SynthesisRequest) -> Sequence[Step]:
        script = self._script
        steps = None
        if isinstance(script, Mapping):
            steps = script.get(request.text)
        elif script is not None:
            steps = script(request)
        if steps is None:
            return [Emit.tone(duration_of(request.text), frequency_of(request.text))]
        return steps

    def _perform(self, call: Call, sink: Sink, token: CancelToken) -> FinishReason:
        try:
            for step in self._steps(call.request):
                if isinstance(step, Finish):
                    return step.reason
                if isinstance(step, Emit):
                    self._emit(step, call, sink, token)
                else:
                    _pause(step, token)
        except _Stop as stop:
            return stop.reason
        return "stop"

    def _emit(self, step: Emit, call: Call, sink: Sink, token: CancelToken) -> None:
        budget = call.request.max_new_tokens
        frame = self._info.sample_rate / self._info.frame_rate
        for chunk in step.chunks(self._info.sample_rate):
            if token.is_set:
                raise _Stop("cancelled")
            room = None if budget is None else max(0, round(budget * frame) - call.n_samples)
            if room == 0:
                raise _Stop("length")
            wanted = chunk[:room]
            call.n_chunks += 1
            call.n_samples += len(wanted)
            if not sink(wanted):
                call.sink_refused = True
                raise _Stop("cancelled")
            if step.pace_s and token.wait(step.pace_s):
                raise _Stop("cancelled")


def _pause(step: Wait | Fail | Hang, token: CancelToken) -> None:
    if isinstance(step, Fail):
        raise step.error
    if isinstance(step, Wait):
        if not step.cancellable:
            time.sleep(step.seconds)
        elif token.wait(step.seconds):
            raise _Stop("cancelled")
        return
    step.reached.set()
    while not step.until.wait(0.01 if step.cancellable else None):
        if token.is_set:
            raise _Stop("cancelled")
