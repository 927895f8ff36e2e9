"""The shapes of answers, for the schema at /openapi.json and its tests.

Routes answer plain dictionaries; `tests/schema` holds them against these, field by field.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class ErrorDetail(Answer):
    message: str
    """What was wrong, what was expected, and what to do."""
    type: str
    """The family: invalid_request_error, authentication_error, server_busy ..."""
    param: str | None
    """The field at fault."""
    code: str | None
    """For programs: model_not_found, voice_not_found, too_large ..."""


class Error(Answer):
    """Every error of every route, as OpenAI's API has it."""

    error: ErrorDetail


# Speech -------------------------------------------------------------------------------------------


class InputTokenDetails(Answer):
    text_tokens: int
    audio_tokens: int


class Usage(Answer):
    input_tokens: int
    """Text tokens."""
    output_tokens: int
    """Codec frames."""
    total_tokens: int
    input_token_details: InputTokenDetails


class SpeechAudioDelta(Answer):
    """A slice of one audio stream; the slices joined are the whole file."""

    type: Literal["speech.audio.delta"]
    audio: str
    """base64."""


class SpeechAudioDone(Answer):
    type: Literal["speech.audio.done"]
    usage: Usage
    finish_reason: Literal["stop", "length"]
    """length: the token budget ran out, or the voice did not stop by itself."""


class SpeechAudioError(Answer):
    """The last event where speaking failed after audio was sent."""

    type: Literal["speech.audio.error"]
    error: ErrorDetail


class BatchSuccess(Answer):
    index: int
    status: Literal["success"]
    audio_data: str
    """base64."""
    media_type: str
    duration_ms: int
    voice: str
    language: str
    seed: int
    finish_reason: Literal["stop", "length"]
    usage: Usage


class BatchFailure(Answer):
    index: int
    status: Literal["error"]
    error: ErrorDetail


class Batch(Answer):
    id: str
    results: list[BatchSuccess | BatchFailure]
    """In the order of the items."""
    total: int
    succeeded: int
    failed: int


# Voices -------------------------------------------------------------------------------------------

VoiceKind = Literal["built_in", "speaker", "starter", "registered", "designed"]


class VoiceEntry(Answer):
    id: str
    """What may stand in `voice`; so may the name."""
    name: str
    kind: VoiceKind
    language: str = ""
    """Left out where the voice has none of its own."""
    created_at: int = 0
    """Unix seconds; only of registered ones."""


class VoiceList(Answer):
    object: Literal["list"]
    voices: list[VoiceEntry]


class RegisteredVoice(VoiceEntry):
    object: Literal["audio.voice"]
    material: Literal["reference", "latents", "embedding"]
    """What it was made from."""
    description: str = ""
    ref_text: str = ""
    consent: str = ""
    warning: str = ""
    """Only where the running model cannot speak with it."""


class CreatedVoice(RegisteredVoice):
    status: Literal["registered"]


class DeletedVoice(Answer):
    id: str
    object: Literal["audio.voice"]
    deleted: Literal[True]
    status: Literal["deleted"]


class VoiceConsent(Answer):
    id: str
    object: Literal["audio.voice_consent"]
    name: str
    language: str
    created_at: int


class VoiceConsentList(Answer):
    object: Literal["list"]
    data: list[VoiceConsent]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedVoiceConsent(Answer):
    id: str
    object: Literal["audio.voice_consent"]
    deleted: Literal[True]


# Models, languages, the server itself -------------------------------------------------------------


class Model(Answer):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(Answer):
    object: Literal["list"]
    data: list[Model]


class AudioModel(Answer):
    id: str
    name: str


class AudioModelList(Answer):
    models: list[AudioModel]


class Candidate(Answer):
    language: str
    score: float


class IdentifiedLanguage(Answer):
    language: str | None
    accepted: bool
    """Certain enough to change a voice for; otherwise `language` is the fallback."""
    source: str
    candidates: list[Candidate]


class LanguageList(Answer):
    object: Literal["list"]
    results: list[IdentifiedLanguage]


class Capabilities(Answer):
    """What this server can do. More keys may come."""

    server: dict[str, Any]
    needs_key: bool
    """Whether speaking takes an API key."""
    protocol: dict[str, Any]
    engine: dict[str, Any]
    audio: dict[str, Any]
    languages: dict[str, Any]
    limits: dict[str, Any]
    controls: dict[str, Any]
    features: dict[str, Any]
    endpoints: list[str]
    session: dict[str, Any]


class HealthReport(Answer):
    status: Literal["ok", "degraded"]
    active_requests: int
    queued_requests: int
    requests_total: int
    synthesis_failures_total: int
    unusable_outputs_total: int
    last_progress_age_ms: int | None
    """Of the synthesis that stands still longest; null while none runs."""
    stalled: bool
    engine_up: bool
    engine_restarts_total: int
    """Both can only change where the engine lives in a process of its own."""


class Readiness(Answer):
    status: Literal["starting", "ready", "restarting", "draining", "closed"]


class Alive(Answer):
    status: Literal["ok"]
