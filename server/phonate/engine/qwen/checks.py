"""From a `SynthesisRequest` to what a native library is handed: everything checked, once.

Some libraries end the whole process on a NaN, a code out of range or a prompt that does not fit,
and obey control tokens inside a text. So no value reaches one that was not looked at here; what
differs between libraries and models comes from `Traits` and `QwenModel`, never from a name.
"""

from __future__ import annotations

import math
import re
import secrets
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from phonate.engine.base import Sampling, SynthesisRequest, TextLayout
from phonate.engine.models.text_tokens import LazyTextTokens
from phonate.engine.qwen.library_traits import Traits
from phonate.engine.qwen.model import QwenModel
from phonate.engine.qwen.values import Number, Range, check_codes, check_embedding, check_number
from phonate.errors import (
    InvalidRequest,
    UnsupportedLanguage,
    UnsupportedOperation,
    VoiceNotFound,
)

DEFAULT_FRAMES = 2048
MIN_FRAMES = 12
"""A prompt that leaves less than a second is refused as too long, unless a budget was given."""
TEXT_LAYOUTS: dict[TextLayout, int] = {"auto": 0, "streaming": 1, "non_streaming": 2}
GREEDY_BELOW = 1e-3
"""A temperature under this always picks the most likely code, and dividing by it overflows."""
PROMPT_SLACK = 24
"""Rows besides text and reference: role, language, speaker, tails (MODEL_SPEC 4.2: at most 13),
and some room for a tokenizer that counts a little differently."""


_INT_MAX = (1 << 31) - 1
_TEMPERATURE = Range(0, 100, "a number from 0 (greedy) to 100")
_TOP_K = Range(0, _INT_MAX, "a whole number from 0 (off)", whole=True)
_TOP_P = Range(1e-6, 1, "a number above 0, at most 1")
RANGES: dict[str, Range] = {
    "temperature": _TEMPERATURE,
    "top_k": _TOP_K,
    "top_p": _TOP_P,
    # outside of these, dividing logits by the penalty overflows float32 sooner or later
    "repetition_penalty": Range(0.01, 100, "a number from 0.01 to 100"),
    "subtalker_temperature": _TEMPERATURE,
    "subtalker_top_k": _TOP_K,
    "subtalker_top_p": _TOP_P,
}
SWITCHES = ("do_sample", "subtalker_do_sample")
_CAN = {
    "base": "clones a voice from reference audio, or speaks without one",
    "custom_voice": "speaks with voices of its own",
    "voice_design": "makes up a voice from `instructions`",
}


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A request as the library gets it. Arrays are contiguous copies."""

    text: str
    language: str
    instructions: str | None
    speaker: str | None
    embedding: npt.NDArray[np.float32] | None
    codes: npt.NDArray[np.int32] | None
    """[n_codebooks, T]"""
    reference_text: str | None
    seed: int
    max_new_tokens: int
    sampling: dict[str, Number]
    text_layout: int
    first_chunk_frames: int
    n_text_tokens: int


@dataclass(frozen=True)
class RequestChecker:
    """Checks requests for one loaded model on one library."""

    model: QwenModel
    traits: Traits
    tokens: LazyTextTokens
    specials: tuple[str, ...]
    """Strings the tokenizer would obey."""
    context_rows: int
    """Prompt rows + frames that one request may have."""
    defaults: Mapping[str, Number]
    """The library's own sampling values, by the names of `Sampling`."""
    default_speaker: str | None = None
    _pattern: re.Pattern[str] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        words = [re.escape(word) for word in self.specials if len(word) > 1]
        pattern = re.compile("|".join(words)) if words else None
        object.__setattr__(self, "_pattern", pattern)

    def plan(self, request: SynthesisRequest) -> Plan:
        """Raises from the InvalidRequest branch, naming the field as a client knows it."""
        text = self.spoken(request.text, "input")
        if is_blank(text):
            raise InvalidRequest("The text is blank; send something to say.", param="input")
        speaker = self._speaker(request)
        instructions = self._instructions(request)
        embedding, codes, reference_text = self._reference(request)
        sampling = self._sampling(request.sampling)
        self._check_layout(request)
        n_text_tokens = self.tokens.count(text)
        rows = PROMPT_SLACK + n_text_tokens
        rows += self.tokens.count(instructions) + PROMPT_SLACK if instructions else 0
        rows += self.tokens.count(reference_text) if reference_text else 0
        rows += codes.shape[1] if codes is not None else 0
        return Plan(
            text=text,
            language=self._language(request.language),
            instructions=instructions,
            speaker=speaker,
            embedding=embedding,
            codes=codes,
            reference_text=reference_text,
            seed=_seed(request.seed),
            max_new_tokens=self._frames(request.max_new_tokens, rows),
            sampling=sampling,
            text_layout=TEXT_LAYOUTS[request.text_layout],
            first_chunk_frames=request.initial_codec_chunk_frames or 0,
            n_text_tokens=n_text_tokens,
        )

    # ------------------------------------------------------------ text

    def spoken(self, text: str, param: str) -> str:
        """The text without what no voice can say: control characters (a NUL would end it for C)
        become spaces, and it is stripped. Where the library obeys control tokens, each is broken
        by a space behind its first character: `<|im_end|>` -> `< |im_end|>`. Every letter stays,
        in order, and a space between signs is not heard."""
        if not isinstance(text, str):
            raise InvalidRequest(f"`{param}` must be text.", param=param)
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as exc:
            raise InvalidRequest(
                f"`{param}` is not valid Unicode: half a surrogate pair at character {exc.start}. "
                "Cut texts between characters, not between UTF-16 units.",
                param=param,
            ) from None
        text = unicodedata.normalize("NFC", text)
        text = _CONTROL.sub(" ", text).strip()
        if self.traits.obeys_special_tokens and self._pattern is not None:
            while (broken := self._pattern.sub(_break, text)) != text:
                text = broken
        return text

    def _language(self, language: str | None) -> str:
        if language is None or language.lower() in ("", "auto"):
            return "auto"
        known = {name.lower(): name for name in (*self.model.languages, *self.model.dialects)}
        try:
            return known[language.lower()]
        except KeyError:
            raise UnsupportedLanguage(
                f"This model does not speak {language!r}. It speaks: {', '.join(known.values())}.",
                param="language",
            ) from None

    # ------------------------------------------------------------ what the model is for

    def _unsupported(self, what: str, param: str) -> UnsupportedOperation:
        kind = self.model.kind
        return UnsupportedOperation(
            f"{what} The loaded model {self.model.name} ({kind}) {_CAN[kind]}.", param=param
        )

    def _speaker(self, request: SynthesisRequest) -> str | None:
        if self.model.kind != "custom_voice":
            if request.speaker is not None:
                raise self._unsupported("It has no speakers to choose from.", "voice")
            return None
        wanted = self.default_speaker if request.speaker is None else request.speaker
        for speaker in self.model.speakers:
            if wanted is not None and speaker.id.lower() == wanted.lower():
                return speaker.id
        raise VoiceNotFound(wanted or "", [speaker.id for speaker in self.model.speakers])

    def _instructions(self, request: SynthesisRequest) -> str | None:
        text = self.spoken(request.instructions or "", "instructions")
        if text and not self.model.takes_instructions:
            raise self._unsupported("`instructions` are not for this model.", "instructions")
        if not text and self.model.kind == "voice_design":
            raise InvalidRequest(
                "This model makes up its voice: say in `instructions` what it should sound like, "
                "for example 'a calm, deep male voice'.",
                param="instructions",
            )
        return text or None

    def _reference(
        self, request: SynthesisRequest
    ) -> tuple[npt.NDArray[np.float32] | None, npt.NDArray[np.int32] | None, str | None]:
        reference = request.reference
        if reference is None:
            return None, None, None
        if self.model.kind != "base":
            raise self._unsupported("It cannot clone a voice.", "voice")
        embedding = check_embedding(reference.embedding, self.model.hidden_size)
        if request.clone_mode == "speaker_only" or reference.codes is None or not reference.text:
            return embedding, None, None
        text = self.spoken(reference.text, "ref_text")
        if not text:
            return embedding, None, None
        return embedding, check_codes(reference.codes, self.model.n_codebooks), text

    # ------------------------------------------------------------ numbers

    def _sampling(self, sampling: Sampling) -> dict[str, Number]:
        values: dict[str, Number] = {}
        for name in SWITCHES:
            value = getattr(sampling, name)
            if value is not None and not isinstance(value, bool):
                raise InvalidRequest(f"`{name}` must be true or false.", param=name)
            values[name] = self.defaults[name] if value is None else value
        for name, limits in RANGES.items():
            value = getattr(sampling, name)
            if value is None:
                values[name] = self.defaults[name]
                continue
            values[name] = check_number(value, name, limits)
            if (
                name in ("subtalker_top_k", "subtalker_top_p")
                and not self.traits.subtalker_filters
                and not math.isclose(values[name], self.defaults[name], rel_tol=1e-6)
            ):
                raise UnsupportedOperation(
                    f"`{name}` has no effect in the native library {self.traits.label}; "
                    "leave it out.",
                    param=name,
                )
        for prefix in ("", "subtalker_"):
            if values[f"{prefix}temperature"] < GREEDY_BELOW:
                values[f"{prefix}do_sample"] = False
                values[f"{prefix}temperature"] = self.defaults[f"{prefix}temperature"]
        return values

    def _check_layout(self, request: SynthesisRequest) -> None:
        if request.text_layout not in self.traits.text_layouts:
            raise UnsupportedOperation(
                f"The native library {self.traits.label} lays a prompt out in one way only; "
                "leave `non_streaming_mode` out.",
                param="non_streaming_mode",
            )
        frames = request.initial_codec_chunk_frames
        if frames is None:
            return
        check_number(
            frames, "initial_codec_chunk_frames", Range(1, 64, "a whole number from 1 to 64", True)
        )
        if not self.traits.first_chunk_frames:
            raise UnsupportedOperation(
                f"The native library {self.traits.label} decides on its chunks itself; "
                "leave `initial_codec_chunk_frames` out.",
                param="initial_codec_chunk_frames",
            )

    def _frames(self, wanted: int | None, rows: int) -> int:
        room = self.context_rows - rows
        if wanted is None:
            if room < MIN_FRAMES:
                raise InvalidRequest(
                    f"The text is too long: with voice and instructions it takes up to {rows} of "
                    f"the {self.context_rows} positions of the model, which leaves no room for "
                    "speech. Send it in parts.",
                    param="input",
                )
            return min(DEFAULT_FRAMES, room)
        limits = Range(1, self.context_rows, f"a whole number from 1 to {self.context_rows}", True)
        check_number(wanted, "max_new_tokens", limits)
        if wanted > room:
            raise InvalidRequest(
                f"`max_new_tokens` is {wanted}, but text, voice and instructions take up to {rows} "
                f"of the {self.context_rows} positions of the model: at most {max(room, 0)} are "
                "left. Ask for fewer, or send a shorter text.",
                param="max_new_tokens",
            )
        return wanted


_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def is_blank(text: str) -> bool:
    """Nothing but spaces and characters without a shape, such as zero-width ones."""
    return all(unicodedata.category(char)[0] in "CZ" for char in text)


def _break(match: re.Match[str]) -> str:
    word = match.group()
    return f"{word[0]} {word[1:]}"


def _seed(seed: int) -> int:
    """-1 draws one here, so that it can be reported whatever the library."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not -(1 << 63) <= seed < 1 << 63:
        raise InvalidRequest("`seed` must be a whole number of 64 bits.", param="seed")
    return secrets.randbits(53) if seed == -1 else seed
