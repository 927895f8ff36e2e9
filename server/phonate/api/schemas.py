"""The body of a speech request: what clients send, checked, and what comes of it.

null is absent, unknown fields are ignored, known fields are honoured or refused with their name.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, WithJsonSchema

from phonate.api.state import State
from phonate.audio.encoders import FORMATS, Format, find_format
from phonate.audio.resample import RATES
from phonate.errors import InvalidRequest, UnsupportedOperation
from phonate.speech import fields
from phonate.speech.fields import Switch, VoiceFields, one_of, refuse, shown
from phonate.speech.request import SpeechRequest

Delivery = Literal["stream", "whole", "sse"]


def _check_input(value: object) -> str:
    if not isinstance(value, str):
        raise refuse(f"must be a string, not {shown(value)}.")
    if not value.strip():
        raise refuse("must not be blank: it is the text to speak.")
    return value


def _check_format(value: object) -> Format:
    found = find_format(value) if isinstance(value, str) else None
    if found is None:
        raise refuse(f"must be one of {', '.join(FORMATS)}, not {shown(value)}.")
    return found


def _check_rate(value: object) -> int:
    if isinstance(value, bool) or value not in RATES:
        raise refuse(f"must be one of {', '.join(map(str, RATES))}, not {shown(value)}.")
    return RATES[RATES.index(value)]


class SpeechBody(VoiceFields):
    """POST /v1/audio/speech."""

    input: Annotated[str, BeforeValidator(_check_input), WithJsonSchema({"type": "string"})]
    model: Annotated[str | None, fields.text(max_chars=256), WithJsonSchema({"type": "string"})] = (
        None
    )
    response_format: Annotated[
        Any,
        BeforeValidator(_check_format),
        WithJsonSchema({"type": "string", "enum": [*FORMATS, "ogg"], "default": "mp3"}),
    ] = FORMATS["mp3"]
    stream_format: Annotated[str | None, one_of("audio", "sse")] = None
    stream: Switch = None
    sample_rate: Annotated[
        int, BeforeValidator(_check_rate), WithJsonSchema({"type": "integer", "enum": [*RATES]})
    ] = 24000
    split: Annotated[Literal["auto", "none"], one_of("auto", "none")] = "auto"

    @property
    def format(self) -> Format:
        found: Format = self.response_format
        return found

    @property
    def delivery(self) -> Delivery:
        if self.stream_format == "sse" or (self.stream and self.stream_format is None):
            return "sse"
        return "whole" if self.stream is False else "stream"

    def to_request(self, state: State, request_id: str, key: str, *, whole: bool) -> SpeechRequest:
        """Check against this server and its engine. Raises from `InvalidRequest`."""
        state.models.check(self.model)
        limit = state.settings.max_input_chars
        if len(self.input) > limit:
            raise InvalidRequest(
                f"input must have at most {limit} characters, not {len(self.input)}. "
                "Send it in parts, or raise --max-input-chars.",
                param="input",
            )
        speaker = state.voices.resolve(self.voice)
        self._check_engine(state)
        return SpeechRequest(
            text=self.input,
            voice=speaker.id if speaker else "",
            speaker=speaker.id if speaker else None,
            language=self.language,
            instructions=self.instructions,
            seed=self.chosen_seed,
            speed=self.speed or 1.0,
            sample_rate=self.sample_rate,
            max_new_tokens=self.max_new_tokens,
            sampling=self.sampling,
            clone_mode=self.clone_mode or "auto",
            whole=whole,
            split=self.split,
            request_id=request_id,
            key=key,
        )

    def _check_engine(self, state: State) -> None:
        """Fields that mean nothing to this engine are refused, never ignored."""
        info = state.service.engine.info
        if not info.takes_sampling:
            for name in _SAMPLING:
                if getattr(self, name) is not None:
                    raise UnsupportedOperation(
                        f"{name}: the model {info.model!r} has no such control. Leave it out, "
                        "or serve a Qwen3-TTS model (--model).",
                        param=name,
                    )


_SAMPLING = tuple(
    name for name in fields.SamplingFields.model_fields if name not in ("seed", "max_new_tokens")
)
