"""The fields with which a client shapes speech, the same over HTTP and over the WebSocket.

    >>> read(VoiceFields, {"speaker": "Heart", "temperature": 0, "top_k": None}).voice
    'Heart'
    >>> read(VoiceFields, {"speed": 7})
    Traceback (most recent call last):
    phonate.errors.InvalidRequest: speed must be a number from 0.25 to 4, not 7.

null means absent, unknown fields are ignored, booleans and strings are not numbers, and every
refusal names the field, what it may be, and what came. An edge adds its own fields by inheriting.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from phonate.engine.base import CloneMode, Sampling
from phonate.errors import InvalidRequest

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
MAX_INSTRUCTIONS_CHARS = 500
MAX_NAME_CHARS = 256
MIN_SPEED, MAX_SPEED = 0.25, 4.0

_Model = TypeVar("_Model", bound=BaseModel)


def refuse(message: str) -> PydanticCustomError:
    """What a validator here raises: `message` continues the name of the field ("must be ...")."""
    return PydanticCustomError("phonate", "{text}", {"text": message})


def shown(value: object) -> str:
    """A value as an error may quote it: short, and never a whole upload."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more than 4,300 digits has no decimal form by default
        text = "a very long number"
    return text if len(text) <= 60 else text[:57] + "..."


def one_of(*allowed: str) -> BeforeValidator:
    """A word out of a list, in any case."""

    def check(value: object) -> str:
        word = value.strip().lower() if isinstance(value, str) else None
        if word not in allowed:
            choices = ", ".join(map(repr, allowed))
            raise refuse(
                f"must be {'one of ' if len(allowed) > 1 else ''}{choices}, not {shown(value)}."
            )
        return word

    return BeforeValidator(check)


def _clean_text(value: object, max_chars: int) -> str | None:
    if not isinstance(value, str):
        raise refuse(f"must be a string, not {shown(value)}.")
    if len(value) > max_chars:
        raise refuse(f"must have at most {max_chars} characters, not {len(value)}.")
    return value.strip() or None


def text(*, max_chars: int) -> BeforeValidator:
    """A string without white space around it; a blank one is absent."""
    return BeforeValidator(lambda value: _clean_text(value, max_chars))


def whole_number(low: int, high: int, said: str) -> BeforeValidator:
    """An integer from `low` to `high`; 3.0 counts, since JavaScript cannot say which it means."""

    def check(value: object) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise refuse(f"must be {said}, not {shown(value)}.")
        return value

    return BeforeValidator(check)


def number(fits: Callable[[float], bool], said: str) -> BeforeValidator:
    """A finite number. It must also fit once it is a float32, as engines take it: a penalty of
    1e-60 is above 0 here and 0 there."""

    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise refuse(f"must be {said}, not {shown(value)}.")
        try:
            single = struct.unpack("<f", struct.pack("<f", float(value)))[0]
            ok = math.isfinite(value) and fits(float(value)) and fits(single)
        except OverflowError:
            ok = False
        if not ok:
            raise refuse(f"must be {said}, not {shown(value)}.")
        return float(value)

    return BeforeValidator(check)


def _check_switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise refuse(f"must be true or false, not {shown(value)}.")
    return value


def _check_voice(value: object) -> str | None:
    if isinstance(value, Mapping):
        if not isinstance(value.get("id"), str) or not value["id"].strip():
            raise refuse("must be a name, or an object with the name as its 'id'.")
        value = value["id"]
    if not isinstance(value, str):
        raise refuse(f"must be a name, or an object with an 'id', not {shown(value)}.")
    if len(value) > MAX_NAME_CHARS:
        raise refuse(f"must have at most {MAX_NAME_CHARS} characters, not {len(value)}.")
    return value.strip() or None


def _check_instructions(value: object) -> str | None:
    cleaned = _clean_text(value, MAX_INSTRUCTIONS_CHARS)
    return None if cleaned == "None" else cleaned


def _schema(**said: Any) -> WithJsonSchema:
    return WithJsonSchema(said)


Switch = Annotated[bool | None, BeforeValidator(_check_switch), _schema(type="boolean")]
Temperature = Annotated[
    float | None,
    number(lambda x: x >= 0, "a finite number, 0 (greedy) or more"),
    _schema(type="number", minimum=0),
]
TopK = Annotated[
    int | None,
    whole_number(0, INT32_MAX, "a whole number, 0 (off) or more"),
    _schema(type="integer", minimum=0, maximum=INT32_MAX),
]
TopP = Annotated[
    float | None,
    number(lambda x: 0 < x <= 1, "a number above 0 and up to 1"),
    _schema(type="number", exclusiveMinimum=0, maximum=1),
]
Penalty = Annotated[
    float | None,
    number(lambda x: x > 0, "a finite number above 0"),
    _schema(type="number", exclusiveMinimum=0),
]
Tokens = Annotated[
    int | None,
    whole_number(1, INT32_MAX, "a whole number, 1 or more"),
    _schema(type="integer", minimum=1, maximum=INT32_MAX),
]
Seed = Annotated[
    int | None,
    whole_number(-(2**63), INT64_MAX, "a whole number of 64 bits; -1 draws one"),
    _schema(type="integer", minimum=-(2**63), maximum=INT64_MAX),
]
Speed = Annotated[
    float | None,
    number(lambda x: MIN_SPEED <= x <= MAX_SPEED, "a number from 0.25 to 4"),
    _schema(type="number", minimum=MIN_SPEED, maximum=MAX_SPEED),
]
VoiceName = Annotated[
    str | None,
    BeforeValidator(_check_voice),
    _schema(
        anyOf=[
            {"type": "string", "maxLength": MAX_NAME_CHARS},
            {
                "type": "object",
                "properties": {
                    "id": {"type": "string", "maxLength": MAX_NAME_CHARS, "pattern": r"\S"}
                },
                "required": ["id"],
            },
        ]
    ),
]
Language = Annotated[str | None, text(max_chars=64), _schema(type="string", maxLength=64)]
Instructions = Annotated[
    str | None,
    BeforeValidator(_check_instructions),
    _schema(type="string", maxLength=MAX_INSTRUCTIONS_CHARS),
]
Clone = Annotated[
    CloneMode | None,
    one_of("auto", "speaker_only"),
    _schema(type="string", enum=["auto", "speaker_only"]),
]


class Fields(BaseModel):
    """Base of every body: null is absent, unknown fields are ignored."""

    model_config = ConfigDict(
        extra="ignore", frozen=True, populate_by_name=True, use_attribute_docstrings=True
    )

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            return {key: value for key, value in data.items() if value is not None}
        return data

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Say that null is absent."""
        schema = handler.resolve_ref_schema(handler(core))
        required = schema.get("required", [])
        for name, field in schema.get("properties", {}).items():
            if name not in required:
                _allow_null(field)
        return schema


def _allow_null(schema: JsonSchemaValue) -> None:
    if schema.get("default", ...) is None:
        del schema["default"]
    if "anyOf" in schema:
        if {"type": "null"} not in schema["anyOf"]:
            schema["anyOf"].append({"type": "null"})
    elif isinstance(schema["type"], str):
        schema["type"] = [schema["type"], "null"]
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]


class SamplingFields(Fields):
    """How codes are drawn. Absent means the engine's own default."""

    do_sample: Switch = None
    """false: always the likeliest code."""
    temperature: Temperature = None
    """0 is greedy."""
    top_k: TopK = None
    """Choose among so many codes; 0 is off."""
    top_p: TopP = None
    """Choose among the likeliest codes that together have this probability."""
    repetition_penalty: Penalty = None
    """Above 1: codes that were used become less likely."""
    subtalker_do_sample: Switch = None
    """As `do_sample`, for the codes after the first of a frame."""
    subtalker_temperature: Temperature = None
    """As `temperature`, for those codes."""
    subtalker_top_k: TopK = None
    """As `top_k`, for those codes."""
    subtalker_top_p: TopP = None
    """As `top_p`, for those codes."""
    max_new_tokens: Tokens = None
    """Codec frames, 12.5 a second; absent: as many as the text should need."""
    seed: Seed = None
    """-1 and absent draw one; it comes back in X-Seed."""

    @property
    def sampling(self) -> Sampling:
        """The controls as an engine takes them."""
        return Sampling(**{name: getattr(self, name) for name in Sampling.__dataclass_fields__})

    @property
    def chosen_seed(self) -> int | None:
        """The seed asked for, or None when one is to be drawn."""
        return None if self.seed == -1 else self.seed


class VoiceFields(SamplingFields):
    """Who speaks and how, besides the text."""

    voice: VoiceName = Field(default=None, validation_alias=AliasChoices("voice", "speaker"))
    """A name or id of GET /v1/audio/voices in any case, or one of OpenAI's, which mean the default
    voice. `speaker` is another name of the field."""
    language: Language = None
    """A name, ISO code or locale (German, de, de-DE), or auto: found out from the text."""
    instructions: Instructions = None
    """How to speak; refused where the model takes none."""
    speed: Speed = None
    """The pitch stays. Absent is 1."""
    clone_mode: Clone = None
    """speaker_only: leave the transcript of a cloned voice out (x-vector)."""


def read(model: type[_Model], data: object) -> _Model:
    """Validate `data`. Raises InvalidRequest for the first field that is wrong."""
    try:
        return model.model_validate(data)
    except ValidationError as exc:
        raise explain(exc) from None


def explain(exc: ValidationError) -> InvalidRequest:
    """A pydantic error as ours: the first field at fault, in words."""
    return complaint(exc.errors(include_url=False, include_context=False)[0])


def complaint(first: Mapping[str, Any]) -> InvalidRequest:
    """One entry of pydantic's error list as ours."""
    path = [str(part) for part in first["loc"]]
    name = ".".join(path)
    if first["type"] == "phonate":
        message = first["msg"]
    elif first["type"] == "missing":
        message = "is required."
    elif first["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return InvalidRequest(f"Expected a JSON object, got {shown(first['input'])}.")
    else:
        message = f"is not valid ({first['msg']}), got {shown(first['input'])}."
    return InvalidRequest(f"{name} {message}" if name else message, param=path[0] if path else None)
