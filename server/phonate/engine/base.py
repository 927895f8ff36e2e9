"""What an engine is: the one interface between speech and whatever makes it.

An engine is a plain blocking object. It knows nothing of HTTP, queues, files of voices or event
loops. `synthesize` runs on a worker thread, hands float32 audio to a sink as it is made, looks at
its cancel token at least once per codec frame (80 ms of audio) or per sentence, and returns how it
ended. The caller guarantees that at most `info.max_batch` calls run at a time.

A sink may block: that is how a listener pauses or slows an engine down. It returns False when the
audio is no longer wanted, which an engine treats like a set token.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from phonate.errors import Cancelled

Samples: TypeAlias = npt.NDArray[np.float32]
"""Mono audio, shape [n_samples], nominally within -1..1. An engine may overshoot; shaping clips."""

Sink: TypeAlias = Callable[[Samples], bool]
FinishReason: TypeAlias = Literal["stop", "length", "cancelled"]
CloneMode: TypeAlias = Literal["auto", "speaker_only"]
TextLayout: TypeAlias = Literal["auto", "streaming", "non_streaming"]


@dataclass(frozen=True, slots=True)
class Speaker:
    """A voice that an engine brings along. `id` is what a client sends; `language` is canonical."""

    id: str
    name: str
    language: str | None = None


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine can do. Decided once, when it is loaded; never changes afterwards."""

    name: str
    """The kind: builtin, qwen, scripted."""
    model: str
    """The id under which the model is served."""
    device: str
    sample_rate: int
    """Hz of every chunk that reaches a sink."""
    languages: tuple[str, ...]
    """Canonical names (LANGUAGE.md): english, german ..."""
    speakers: tuple[Speaker, ...] = ()
    default_speaker: str | None = None
    one_language_per_speaker: bool = False
    """Each speaker knows its own language only (the built-in voices); a model's know all."""
    can_clone: bool = False
    """Accepts a `Reference`: at least an x-vector."""
    can_icl: bool = False
    """Accepts reference codes with their transcript (in-context learning)."""
    can_instruct: bool = False
    needs_instructions: bool = False
    """voice_design: the instruction is the voice."""
    takes_sampling: bool = False
    """Temperature, top_k and the like mean something here."""
    uses_seed: bool = True
    frame_rate: float = 12.5
    """Codec frames per second of audio; turns a token budget into seconds."""
    embedding_dim: int = 0
    """Length of an x-vector, 0 when the engine cannot clone."""
    max_text_chars: int | None = None
    """The longest text for one `synthesize` call; longer input is cut into fragments first."""
    max_batch: int = 1
    details: dict[str, str] = field(default_factory=dict)
    """Free-form facts for doctor and capabilities: library, ABI, quantisation."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling controls; None means the engine's own default. Ranges are checked at the edge."""

    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    subtalker_do_sample: bool | None = None
    subtalker_temperature: float | None = None
    subtalker_top_k: int | None = None
    subtalker_top_p: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """What a cloned voice is made of, in the form the engine wants it.

    embedding: float32 [embedding_dim], the x-vector.
    codes: int32 [T, 16], values 0..2047, the codec frames of the reference; None without ICL.
    text: what is said in the reference; goes with `codes`.
    """

    embedding: npt.NDArray[np.float32]
    codes: npt.NDArray[np.int32] | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SynthesisRequest:
    """One fragment of text for one voice. Exactly one of `speaker` and `reference` is set, or
    neither for an engine that needs neither (voice_design, base without a voice)."""

    text: str
    speaker: str | None = None
    reference: Reference | None = None
    language: str | None = None
    """Canonical name; None lets the engine decide."""
    instructions: str | None = None
    seed: int = 0
    """Always given: the caller draws one when the client did not, so that it can report it."""
    max_new_tokens: int | None = None
    """Codec frames; None is the engine's own bound."""
    sampling: Sampling = Sampling()
    clone_mode: CloneMode = "auto"
    text_layout: TextLayout = "auto"
    initial_codec_chunk_frames: int | None = None


@dataclass(frozen=True, slots=True)
class SynthesisResult:
    """How a synthesis ended, for headers, usage and metrics."""

    finish_reason: FinishReason
    n_frames: int
    n_text_tokens: int
    seed: int
    skipped_text: str = ""
    """What the engine could not speak and left out (the built-in voice: other scripts)."""


class CancelToken:
    """Set once, from any thread; polled by the engine. The first reason stays.

    >>> token = CancelToken()
    >>> token.set("client_gone"); token.set("timeout"); token.reason
    'client_gone'
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._reason: str | None = None

    def set(self, reason: str) -> None:
        with self._lock:
            if self._reason is None:
                self._reason = reason
        self._event.set()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    @property
    def reason(self) -> str | None:
        return self._reason

    def wait(self, timeout_s: float) -> bool:
        """Sleep that ends early when the token is set; True if it is set."""
        return self._event.wait(timeout_s)

    def raise_if_set(self) -> None:
        if self.is_set:
            raise Cancelled(self._reason or "cancelled")


@dataclass(frozen=True, slots=True)
class Vitals:
    """How an engine is that can die and come back."""

    up: bool
    """It would take a call now."""
    restarts: dict[str, int]
    """How often it had to be started anew, by cause: all causes that there are."""


@runtime_checkable
class Mortal(Protocol):
    """What an engine that lives in a process of its own says beyond `Engine`."""

    @property
    def vitals(self) -> Vitals: ...


class Engine(Protocol):
    """See the module's text. Every method is called from a worker thread except `info`."""

    @property
    def info(self) -> EngineInfo: ...

    def synthesize(
        self, request: SynthesisRequest, sink: Sink, token: CancelToken
    ) -> SynthesisResult:
        """Speak one fragment. Returns with finish_reason "cancelled" when the token was set or the
        sink returned False. Raises from the `errors` tree for everything else: InvalidRequest and
        its children before the first chunk, EngineFailure at any time."""
        ...

    def unspoken(self, text: str, speaker: str | None) -> str:
        """What of `text` would be left out, "" if nothing: the same as `skipped_text` later, but
        before the first sample, since headers leave first. Cheap."""
        ...

    def extract_voice(self, audio: Samples, text: str | None) -> Reference:
        """Reference audio (mono, 24 kHz) -> what `Reference` says; with `text`, codes too.
        Raises UnsupportedOperation when the engine cannot clone."""
        ...

    def warm_up(self) -> None:
        """Pay first-call costs now. Called once, before the server is ready."""
        ...

    def close(self) -> None:
        """Free everything. The caller has waited for running calls first. Idempotent."""
        ...
