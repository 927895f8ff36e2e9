"""Qwen3-TTS in this process, through a native library with the `qt_` C ABI.

    library = find_library()                    library*.py      find, load, vet
    model   = read_model(talker, codec)         qwen_model.py    what the files say
    context = open_context(library, model, ..)  qwen_context.py  load them
    plan    = RequestChecker(..).plan(request)  qwen_checks.py   nothing unchecked goes in
    outcome = synthesize(library, context, ..)  qwen_call.py     the call itself
    outcome -> SynthesisResult or an exception  here

This is the border where a native status becomes an exception of our tree.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from phonate.engine.base import (
    CancelToken,
    EngineInfo,
    FinishReason,
    Reference,
    Samples,
    Sink,
    SynthesisRequest,
    SynthesisResult,
)
from phonate.engine.models.text_tokens import LazyTextTokens
from phonate.engine.qwen.call import (
    CANCELLED,
    OK,
    STATUS,
    Call,
    OnsetSilence,
    Outcome,
    extract,
    synthesize,
)
from phonate.engine.qwen.checks import (
    RANGES,
    SWITCHES,
    Plan,
    RequestChecker,
)
from phonate.engine.qwen.context import ContextOptions, open_context, thread_count
from phonate.engine.qwen.costs import FrameCost, frame_cost
from phonate.engine.qwen.library import Library, foreign
from phonate.engine.qwen.library_search import find_library
from phonate.engine.qwen.model import CODE_LIMIT, QwenModel, read_model, special_strings
from phonate.engine.qwen.places import Places
from phonate.engine.qwen.relay import Relay
from phonate.engine.qwen.values import check_reference_audio
from phonate.errors import (
    Cancelled,
    EngineFailure,
    InvalidRequest,
    OutputError,
    PhonateError,
    SetupError,
    UnsupportedOperation,
)

log = logging.getLogger(__name__)

SAMPLE_RATE = 24000
MAX_TEXT_CHARS = 600
"""About 40 s of English or two minutes of Chinese: well inside every library's context, and
before the models begin to drift."""
WARM_UP_TEXT = "Warm up."
WARM_UP_INSTRUCTIONS = "A calm voice."
WARM_UP_FRAMES = 2
CLOSE_GRACE_S = 10.0
CLOSE_STOP_S = 10.0


class QwenEngine:
    """An `Engine` on one native context. Loads in the constructor; SetupError when it cannot."""

    def __init__(
        self,
        talker: Path,
        codec: Path,
        *,
        library: Library | None = None,
        options: ContextOptions | None = None,
        model_id: str | None = None,
        onset_silence: OnsetSilence | None = None,
    ) -> None:
        self._options = options or ContextOptions()
        self._library = library or find_library()
        self._model = read_model(talker, codec)
        self._onset = _checked_onset(onset_silence, self._library)
        self._context = open_context(self._library, self._model, self._options)
        self._places = Places(self._options.max_batch)
        self._closing = threading.Event()
        self._close_lock = threading.Lock()
        self._info = self._describe(model_id)
        traits = self._library.traits
        self._checker = RequestChecker(
            model=self._model,
            traits=traits,
            tokens=LazyTextTokens(talker),
            specials=special_strings(talker) if traits.obeys_special_tokens else (),
            context_rows=min(
                traits.context_limit or self._options.context_rows, self._model.context_length
            ),
            defaults=self._defaults(),
            default_speaker=self._info.default_speaker,
        )

    @property
    def info(self) -> EngineInfo:
        return self._info

    @property
    def model(self) -> QwenModel:
        return self._model

    @property
    def library(self) -> Library:
        return self._library

    def frame_cost(self) -> FrameCost | None:
        """What a frame costs; None where the library cannot tell."""
        return frame_cost(self._library, self._context)

    def _defaults(self) -> dict[str, int | float | bool]:
        params = foreign().new("qt_tts_params *")
        self._library.lib.qt_tts_default_params(params)
        return {name: getattr(params, name) for name in (*SWITCHES, *RANGES)}

    def _describe(self, model_id: str | None) -> EngineInfo:
        model, library = self._model, self._library
        can_clone = model.kind == "base" and model.has_speaker_encoder and model.has_codec_encoder
        return EngineInfo(
            name="qwen",
            model=model_id or model.name,
            device=library.device,
            sample_rate=SAMPLE_RATE,
            languages=model.languages,
            speakers=model.speakers,
            default_speaker=model.speakers[0].id if model.speakers else None,
            can_clone=can_clone,
            can_icl=can_clone,
            can_instruct=model.takes_instructions,
            needs_instructions=model.kind == "voice_design",
            takes_sampling=True,
            embedding_dim=model.hidden_size if model.kind == "base" else 0,
            max_text_chars=MAX_TEXT_CHARS,
            max_batch=self._options.max_batch,
            details={
                "library": library.traits.label,
                "library_version": library.version,
                "abi": str(library.abi),
                "kind": model.kind,
                "quantization": model.quantization,
                "threads": str(thread_count(self._options)),
                "dialects": ",".join(model.dialects),
            },
        )

    # ------------------------------------------------------------ speaking

    def synthesize(
        self, request: SynthesisRequest, sink: Sink, token: CancelToken
    ) -> SynthesisResult:
        """See `Engine.synthesize`. A cancel is honoured within a frame, also while waiting."""
        plan = self._checker.plan(request)
        if self._options.max_batch == 1:
            outcome, call = self._speak(plan, sink, token)
        else:
            relay: Relay[tuple[Outcome, Call]] = Relay(
                lambda into: self._speak(plan, into, token, relay.may_go)
            )
            outcome, call = relay.run(sink)
        return self._result(plan, outcome, call)

    def _speak(
        self,
        plan: Plan,
        sink: Sink,
        token: CancelToken,
        may_go: Callable[[], bool] = lambda: True,
    ) -> tuple[Outcome, Call]:
        call = Call(sink, token, self._closing, may_go)
        with self._places.taken(1, call.should_stop) as placed:
            if not placed:
                return Outcome(CANCELLED, "", 0, None, False), call
            outcome = synthesize(self._library, self._context, plan, call, self._onset)
        if call.error is not None:
            raise call.error
        return outcome, call

    def _result(self, plan: Plan, outcome: Outcome, call: Call) -> SynthesisResult:
        n_text_tokens = outcome.n_text_tokens or plan.n_text_tokens
        if call.unwanted:
            return SynthesisResult("cancelled", outcome.n_frames, n_text_tokens, plan.seed)
        if outcome.status != OK:
            raise self._exception(outcome.status, outcome.message)
        if not call.n_samples:
            raise OutputError("The model ended the utterance before it made a sound.")
        reason: FinishReason = "length" if outcome.length_reached else "stop"
        return SynthesisResult(reason, outcome.n_frames, n_text_tokens, plan.seed)

    def _exception(self, status: int, message: str) -> PhonateError:
        if status == CANCELLED:
            return Cancelled("engine_closed")
        said = message or "it gave no reason"
        name = STATUS.get(status, str(status))
        log.warning("native call failed: %s: %s", name, said)
        if name == "INVALID_PARAMS":
            return InvalidRequest(f"The engine refused the request: {said}.")
        if name == "MODE_INVALID":
            return UnsupportedOperation(f"The loaded model cannot do this: {said}.")
        if name == "OOM":
            return EngineFailure(
                "The engine ran out of memory. Send a shorter text, or lower --max-batch.",
                code="out_of_memory",
            )
        return EngineFailure(f"The engine failed ({name}): {said}.")

    # ------------------------------------------------------------ cloning

    def unspoken(self, text: str, speaker: str | None) -> str:
        return ""

    def extract_voice(self, audio: Samples, text: str | None) -> Reference:
        """Encodes a reference once: x-vector, and with `text` the codes as well."""
        if not self._info.can_clone:
            lacks = "has no encoders" if self._model.kind == "base" else "is not a base model"
            raise UnsupportedOperation(
                f"{self._model.name} cannot clone a voice: it {lacks}. Load a base model "
                "(Qwen3-TTS-12Hz-*-Base) with its codec.",
                param="ref_audio",
            )
        traits = self._library.traits
        samples = check_reference_audio(audio, SAMPLE_RATE, traits.min_reference_samples)
        spoken = self._checker.spoken(text, "ref_text") if text is not None else None
        # qwentts.cpp loads the encoders lazily and shares one backend: nothing else may run then
        width = 1 if traits.waits_for_place else self._places.width
        with self._places.taken(width, lambda: False):
            status, message, embedding, codes = extract(self._library, self._context, samples)
        if status != OK:
            raise self._exception(status, message)
        if embedding is None or not np.isfinite(embedding).all():
            raise EngineFailure("The engine made no usable voice of the reference audio.")
        if codes.size == 0 or codes.min() < 0 or codes.max() >= CODE_LIMIT:
            raise EngineFailure("The engine made no usable codes of the reference audio.")
        if not spoken:
            return Reference(embedding=embedding)
        frames = np.ascontiguousarray(codes.T)  # [n_codebooks, T] in the ABI
        return Reference(embedding=embedding, codes=frames, text=spoken)

    # ------------------------------------------------------------ life

    def warm_up(self) -> None:
        request = SynthesisRequest(
            text=WARM_UP_TEXT,
            speaker=self._info.default_speaker,
            instructions=WARM_UP_INSTRUCTIONS if self._info.needs_instructions else None,
            seed=1,
            max_new_tokens=WARM_UP_FRAMES,
        )
        self.synthesize(request, lambda _samples: True, CancelToken())

    def close(self, grace_s: float = CLOSE_GRACE_S, stop_s: float = CLOSE_STOP_S) -> None:
        """Turns new calls away, lets running ones end for `grace_s`, tells what is left to stop
        and waits `stop_s` more. A context that is still in use then is left alone: leaking it is
        better than freeing it under a running call. Idempotent."""
        self._places.close()
        with self._close_lock:
            if self._context is None:
                return
            if not self._places.wait_empty(grace_s):
                self._closing.set()
                if not self._places.wait_empty(stop_s):
                    log.error("a native call does not end; its memory is not freed")
                    self._context = None
                    return
            self._library.lib.qt_free(self._context)
            self._context = None


def _checked_onset(onset: OnsetSilence | None, library: Library) -> OnsetSilence | None:
    if onset is None:
        return None
    most_ids, most_frames = library.traits.onset_silence_ids, library.traits.onset_silence_frames
    if not most_ids:
        raise SetupError(
            f"--onset-silence-profile: the native library {library.traits.label} "
            f"(ABI {library.abi}) cannot do this; ABI 5 or 6 can."
        )
    if not 1 <= len(onset.ids) <= most_ids or not all(0 <= i < CODE_LIMIT for i in onset.ids):
        raise SetupError(
            f"An onset-silence profile holds 1 to {most_ids} codes, 0..{CODE_LIMIT - 1}."
        )
    if not 1 <= onset.n_frames <= most_frames:
        raise SetupError(f"An onset-silence profile covers 1 to {most_frames} frames.")
    return onset


__all__ = ["OnsetSilence", "QwenEngine"]
