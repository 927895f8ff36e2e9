"""What every engine refuses before its first sample, read from its info alone."""

from __future__ import annotations

from phonate.engine.base import EngineInfo, SynthesisRequest
from phonate.errors import InvalidRequest, UnsupportedLanguage, UnsupportedOperation, VoiceNotFound


def check_request(info: EngineInfo, request: SynthesisRequest, way_out: str = "") -> None:
    """Raises from `InvalidRequest`, with the field at fault, when `info` rules `request` out.

    way_out: what else would clone, or speak more languages; ends those two messages.
    """
    _check_voice(info, request, way_out)
    if request.language is not None and request.language not in info.languages:
        raise UnsupportedLanguage(
            f"The model {info.model!r} does not speak {request.language}. "
            f"It speaks: {', '.join(info.languages)}. {way_out}".rstrip(),
            param="language",
        )
    if request.instructions is not None and not info.can_instruct:
        raise UnsupportedOperation(
            f"The model {info.model!r} takes no instructions. Leave the field out.",
            param="instructions",
        )
    if request.instructions is None and info.needs_instructions:
        raise InvalidRequest(
            f"The model {info.model!r} makes its voice from a description: "
            "say in `instructions` how the voice should sound.",
            param="instructions",
        )
    if info.max_text_chars is not None and len(request.text) > info.max_text_chars:
        raise InvalidRequest(
            f"One piece of text may have {info.max_text_chars} characters here; "
            f"this one has {len(request.text)}. Send it in parts.",
            param="input",
        )


def _check_voice(info: EngineInfo, request: SynthesisRequest, way_out: str) -> None:
    if request.reference is not None and not info.can_clone:
        raise UnsupportedOperation(
            f"The model {info.model!r} cannot clone a voice. Choose one of its own voices: "
            f"{', '.join(s.id for s in info.speakers) or 'it has none'}. {way_out}".rstrip(),
            param="voice",
        )
    if request.reference is not None and request.speaker is not None:
        raise InvalidRequest("Give a speaker or a reference voice, not both.", param="voice")
    known = [speaker.id for speaker in info.speakers]
    if request.speaker is not None and request.speaker not in known:
        raise VoiceNotFound(request.speaker, known)
