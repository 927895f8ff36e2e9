"""The body of a speech request: what clients send, checked, and what comes of it.

null is absent, unknown fields are ignored, known fields are honoured or refused with their name.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, WithJsonSchema

from phonate.api.one_off import TASKS, check_task, one_off_reference
from phonate.api.state import State
from phonate.api.voice_choice import voice_for
from phonate.audio.encoders import FORMATS, Format, find_format
from phonate.audio.resample import RATES
from phonate.engine.base import EngineInfo, TextLayout
from phonate.errors import InvalidRequest, UnsupportedOperation
from phonate.logs import keep_private
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


def _check_ref_audio(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise refuse(f"must be base64, a data: URL or an http(s) URL, not {shown(value)}.")
    return value.strip()


def _check_embedding(value: object) -> list[float]:
    if not isinstance(value, list) or not 0 < len(value) <= 16384 or not all(map(_is_real, value)):
        raise refuse("must be a list of finite numbers, the x-vector of a voice.")
    return [float(x) for x in value]


def _is_real(x: object) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and abs(x) < 1e6


def _said(**schema: Any) -> WithJsonSchema:
    return WithJsonSchema(schema)


class SpeechBody(VoiceFields):
    """What to say, who says it, and how."""

    input: Annotated[
        str, BeforeValidator(_check_input), _said(type="string", minLength=1, pattern=r"\S")
    ]
    """The text to speak."""
    model: Annotated[
        str | None, fields.text(max_chars=256), _said(type="string", maxLength=256)
    ] = None
    """An id of GET /v1/models; absent: the one that is served."""
    response_format: Annotated[
        Format | None,
        BeforeValidator(_check_format),
        _said(type="string", enum=[*FORMATS, "ogg"]),
    ] = None
    """Absent is mp3; ogg is opus."""
    stream_format: Annotated[
        str | None, one_of("audio", "sse"), _said(type="string", enum=["audio", "sse"])
    ] = None
    """audio: the bytes as they are made. sse: server-sent events with base64. Absent is audio."""
    stream: Switch = None
    """false: a whole file with Content-Length. true: as `stream_format: sse`."""
    sample_rate: Annotated[
        int, BeforeValidator(_check_rate), _said(type="integer", enum=[*RATES])
    ] = 24000
    """Hz."""
    task_type: Annotated[
        str | None, one_of(*map(str.lower, TASKS)), _said(type="string", enum=[*TASKS])
    ] = None
    """The kind of model that is expected; another one is refused."""
    ref_audio: Annotated[
        str | None, BeforeValidator(_check_ref_audio), _said(type="string", pattern=r"\S")
    ] = None
    """A recording to speak like, once: base64, a data: URL, or an http(s) URL of an allowed
    host."""
    ref_text: Annotated[
        str | None, fields.text(max_chars=4096), _said(type="string", maxLength=4096)
    ] = None
    """What `ref_audio` says."""
    x_vector_only_mode: Switch = None
    """true: leave `ref_text` out."""
    speaker_embedding: Annotated[
        list[float] | None,
        BeforeValidator(_check_embedding),
        _said(
            type="array",
            items={"type": "number", "exclusiveMinimum": -1e6, "exclusiveMaximum": 1e6},
            minItems=1,
            maxItems=16384,
        ),
    ] = None
    """The x-vector of a voice, for once."""
    non_streaming_mode: Switch = None
    """Lay the whole text out before the first frame (true), or feed it frame by frame (false)."""
    initial_codec_chunk_frames: Annotated[
        int | None,
        fields.whole_number(1, 64, "a whole number from 1 to 64"),
        _said(type="integer", minimum=1, maximum=64),
    ] = None
    """Size of the first packet; smaller is sooner."""
    split: Annotated[
        Literal["auto", "none"],
        one_of("auto", "none"),
        _said(type="string", enum=["auto", "none"]),
    ] = "auto"
    """auto: a long text is spoken sentence by sentence. none: in one pass."""

    @property
    def format(self) -> Format:
        return self.response_format or FORMATS["mp3"]

    @property
    def delivery(self) -> Delivery:
        if self.stream_format == "sse" or (self.stream and self.stream_format is None):
            return "sse"
        return "whole" if self.stream is False else "stream"

    async def to_request(
        self, state: State, request_id: str, key: str, *, whole: bool
    ) -> SpeechRequest:
        """Check against this server and its engine. Raises from `InvalidRequest`."""
        keep_private(self.input)
        state.models.check(self.model)
        limit = state.settings.max_input_chars
        if len(self.input) > limit:
            raise InvalidRequest(
                f"input must have at most {limit} characters, not {len(self.input)}. "
                "Send it in parts, or raise --max-input-chars.",
                param="input",
            )
        self._check_engine(state.service.engine.info)
        language = state.routing.explicit(self.language)
        reference = await one_off_reference(self, state, key)
        clone_mode = self.clone_mode or state.settings.clone_mode
        voice = await voice_for(state, self.input, self.voice, language, clone_mode, reference)
        return SpeechRequest(
            text=self.input,
            asked_voice=self.voice,
            asked_language=language,
            voice=voice.id,
            speaker=voice.speaker,
            reference=voice.reference,
            language=voice.language,
            instructions=self.instructions,
            seed=self.chosen_seed,
            speed=self.speed or 1.0,
            sample_rate=self.sample_rate,
            max_new_tokens=self.max_new_tokens,
            sampling=self.sampling,
            clone_mode=clone_mode,
            text_layout=_LAYOUTS[self.non_streaming_mode],
            initial_codec_chunk_frames=self.initial_codec_chunk_frames,
            whole=whole,
            split=self.split,
            request_id=request_id,
            key=key,
        )

    def _check_engine(self, info: EngineInfo) -> None:
        """Fields that mean nothing to this engine are refused, never ignored."""
        check_task(self.task_type, info)
        if not info.takes_sampling:
            for name in _SAMPLING:
                if getattr(self, name) is not None:
                    raise UnsupportedOperation(
                        f"{name}: the model {info.model!r} has no such control. Leave it out, "
                        "or serve a Qwen3-TTS model (--model).",
                        param=name,
                    )


_SAMPLING = (
    *(n for n in fields.SamplingFields.model_fields if n not in ("seed", "max_new_tokens")),
    "non_streaming_mode",
    "initial_codec_chunk_frames",
)

_LAYOUTS: dict[bool | None, TextLayout] = {None: "auto", True: "non_streaming", False: "streaming"}
