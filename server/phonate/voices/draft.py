"""A voice that was checked and is ready to be kept, but is not kept yet.

Everything that comes from outside, an upload, an import, a command, becomes a draft first. A draft
holds the exact bytes of the files to come, so what was checked is what is stored.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

import numpy.typing as npt

from phonate.engine.base import Samples
from phonate.errors import InvalidRequest
from phonate.voices.latents import pack_rvq, pack_spk
from phonate.voices.recording import pack_wav
from phonate.voices.voice import MAX_TEXT_CHARS, Material, Voice, VoiceKind, new_name, voice_id

MAX_CONSENT_CHARS = 256
MAX_LANGUAGE_CHARS = 64

_SPACES = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Draft:
    name: str
    material: Material
    files: Mapping[str, bytes]
    """Named as in voice.FILES."""
    kind: VoiceKind = "registered"
    language: str | None = None
    description: str | None = None
    ref_text: str | None = None
    consent: str | None = None

    @property
    def id(self) -> str:
        return voice_id(self.name)

    def to_voice(self, created_at: int) -> Voice:
        return Voice(
            id=self.id,
            name=self.name,
            kind=self.kind,
            material=self.material,
            created_at=created_at,
            language=self.language,
            description=self.description,
            ref_text=self.ref_text,
            consent=self.consent,
        )


@dataclass(frozen=True, slots=True)
class Details:
    """The words around a voice, cleaned. Build with `Details.clean`."""

    name: str
    language: str | None = None
    description: str | None = None
    ref_text: str | None = None
    consent: str | None = None
    kind: VoiceKind = "registered"

    @classmethod
    def clean(
        cls,
        *,
        name: object,
        language: object = None,
        description: object = None,
        ref_text: object = None,
        consent: object = None,
        kind: VoiceKind = "registered",
    ) -> Details:
        """Raises InvalidRequest naming the field. None and blank both mean absent."""
        return cls(
            name=new_name(name),
            language=clean_text(language, "language", MAX_LANGUAGE_CHARS),
            description=clean_text(description, "description"),
            ref_text=clean_text(ref_text, "ref_text"),
            consent=clean_text(consent, "consent", MAX_CONSENT_CHARS),
            kind=kind,
        )


def draft_of_recording(details: Details, samples: Samples) -> Draft:
    """From reference audio, float32 [n], mono, 24 kHz, whose fitness was checked."""
    return _draft(details, Material.REFERENCE, {"reference.wav": pack_wav(samples)})


def draft_of_latents(details: Details, embedding: npt.ArrayLike, codes: npt.ArrayLike) -> Draft:
    """From float [dim] and int [T, 16]."""
    files = {"voice.spk": pack_spk(embedding), "voice.rvq": pack_rvq(codes)}
    return _draft(details, Material.LATENTS, files)


def draft_of_embedding(details: Details, embedding: npt.ArrayLike) -> Draft:
    """From float [dim] alone. A transcript says nothing without codes, so it is refused."""
    if details.ref_text is not None:
        raise InvalidRequest(
            "ref_text goes with a recording or with codes, not with a speaker embedding alone.",
            param="ref_text",
        )
    return _draft(details, Material.EMBEDDING, {"voice.spk": pack_spk(embedding)})


def _draft(details: Details, material: Material, files: Mapping[str, bytes]) -> Draft:
    return Draft(
        name=details.name,
        material=material,
        files=files,
        kind=details.kind,
        language=details.language,
        description=details.description,
        ref_text=details.ref_text,
        consent=details.consent,
    )


def clean_text(value: object, param: str, max_chars: int = MAX_TEXT_CHARS) -> str | None:
    """White space collapsed, blank and None absent; no control characters or lone surrogates."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidRequest(f"{param} must be a string.", param=param)
    text = _SPACES.sub(" ", value).strip()
    if len(text) > max_chars:
        raise InvalidRequest(
            f"{param} has {len(text)} characters; at most {max_chars} are kept.", param=param
        )
    if any(unicodedata.category(c) in {"Cc", "Cs"} for c in text):
        raise InvalidRequest(
            f"{param} must not contain control characters or lone surrogates.", param=param
        )
    return text or None
