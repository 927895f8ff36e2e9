"""What a client wants said, after every check at the edge: the input of `service`."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Literal

from phonate.engine.base import CloneMode, Reference, Sampling, TextLayout


@dataclass(frozen=True, slots=True, eq=False)
class SpeechRequest:
    """One utterance: any amount of text, one voice, one seed.

    voice: the id under which it is reported. speaker or reference: what the engine is given.
    seed None: the server begins with `first_seed` or draws one, and may draw another for its one
    retry of a runaway fragment.
    speed: 0.25..4, pitch kept. sample_rate: Hz of the audio that leaves.
    """

    text: str
    voice: str
    asked_voice: str | None = None
    """The name that the client gave, before any route."""
    asked_language: str | None = None
    """Canonical, when the client (or --lang) named one; None is identified."""
    speaker: str | None = None
    reference: Reference | None = None
    language: str | None = None
    instructions: str | None = None
    seed: int | None = None
    first_seed: int | None = None
    speed: float = 1.0
    sample_rate: int = 24000
    max_new_tokens: int | None = None
    sampling: Sampling = Sampling()
    clone_mode: CloneMode = "auto"
    text_layout: TextLayout = "auto"
    initial_codec_chunk_frames: int | None = None
    startup_buffer: bool = True
    """Gather some audio before the first leaves. Pointless where the listener still hears other."""
    whole: bool = False
    """The client gets nothing before the end: a fragment that went wrong can be tried again."""
    split: Literal["auto", "none"] = "auto"
    admitted: bool = False
    """It had a slot and gave it up for others: it may wait again, however long the queue."""
    request_id: str = ""
    key: str = ""
    """Whose turn in the queue this takes."""


def draw_seed() -> int:
    """A seed in 0..2^31-1: every engine takes it, and a person can retype it from X-Seed."""
    return secrets.randbelow(2**31)
