"""What the golden files are made from: random models, texts, and how they are spoken.

Imports nothing beyond numpy and phonate's factory, so that both sides read the same list: the
official package in its own environment (tests/parity) and the default test run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phonate.engine.models.factory import Recipe

N_FRAMES = 16
"""Greedy frames per case. The official package makes one fewer than max_new_tokens."""

MODELS = {
    "tiny-base": Recipe(kind="base"),
    # A float32 checkpoint with a projection: values that bfloat16 cannot hold.
    "tiny-base-proj": Recipe(kind="base", size="tiny-proj", dtype="F32"),
    "tiny-customvoice": Recipe(kind="customvoice"),
    # The official package ignores instructions on custom_voice 0.6B ("0b6"); this one is "1b7".
    "tiny-customvoice-proj": Recipe(kind="customvoice", size="tiny-proj"),
    "tiny-voicedesign": Recipe(kind="voicedesign", size="tiny-proj"),
    "tiny-base-eos": Recipe(kind="base", eos_gain=1.8),
}

TEXT = "Hello world, the user and 2 assistants in Zürich."
REF_TEXT = "It is the reference of you."
LONG_REF_TEXT = "The reference text is longer than the audio to which it belongs, " * 2


@dataclass(frozen=True, slots=True)
class Case:
    """One utterance. `reference` is the number of reference frames for in-context learning, 0 for
    the x-vector alone; both only on base models. `streaming` is the text layout."""

    name: str
    model: str
    text: str = TEXT
    language: str = "auto"
    streaming: bool = False
    speaker: str | None = None
    instruct: str | None = None
    reference: int = 0
    ref_text: str | None = None
    max_frames: int = N_FRAMES


CASES = (
    Case("xvec-streaming", "tiny-base", streaming=True),
    Case("xvec-streaming-one-token", "tiny-base", text="a", language="german", streaming=True),
    Case("xvec-nonstreaming", "tiny-base", language="english"),
    Case(
        "icl-streaming-short-ref",
        "tiny-base",
        "Hello world",
        "english",
        True,
        None,
        None,
        5,
        REF_TEXT,
    ),
    Case(
        "icl-streaming-long-ref", "tiny-base", "is it", "english", True, None, None, 32, "the user"
    ),
    Case("icl-nonstreaming", "tiny-base", "Hello", "chinese", False, None, None, 8, "and you"),
    Case("proj-xvec-streaming", "tiny-base-proj", "Hello world.", "french", streaming=True),
    Case("proj-icl-streaming", "tiny-base-proj", "Hello", "auto", True, None, None, 6, "the user"),
    Case("speaker", "tiny-customvoice", "Hello world", "english", speaker="vivian"),
    Case("speaker-streaming", "tiny-customvoice", "Hello world", streaming=True, speaker="Ryan"),
    Case("dialect-auto", "tiny-customvoice", "你好 world", speaker="eric"),
    Case("dialect-chinese", "tiny-customvoice", "你好", "Chinese", speaker="dylan"),
    Case("dialect-english", "tiny-customvoice", "Hello", "english", speaker="dylan"),
    Case(
        "speaker-instruct",
        "tiny-customvoice-proj",
        "Hello world",
        "english",
        speaker="serena",
        instruct="Speak of it in the user's tone.",
    ),
    Case("design", "tiny-voicedesign", "Hello world", "english", instruct="An old assistant."),
    Case("design-streaming", "tiny-voicedesign", "Hello you", "auto", True, instruct="A user."),
    Case("stops-by-itself", "tiny-base-eos", "Hello world", max_frames=200),
)

TOKENIZER_TEXTS = (
    TEXT,
    "Hello  world \n\n user\r\n\tassistant",
    "I'm you're IT'S we'Ll",
    "é e\u0301 Å ﬁ \u1e9b\u0323",
    "你好，世界。12345 １２ ٣",
    "##heading #!bang ... ..",
    " leading and trailing  ",
    "mixed123abc_def-ghi",
    "👍🏽 emoji \u200d zwj",
    "\u00a0nbsp\u3000ideographic",
    "<|im_end|>",
    "a",
    "the\nuser",
    "x" * 40,
    "नमस्ते สวัสดี مرحبا",
    "1/2 50% $5.30 a+b=c",
    "'s 'S 'tis 'LL",
    "\r\n\r\n",
)


def reference_audio(n_samples: int = 61440 + 700) -> np.ndarray:
    """Something like a voice, mono 24 kHz float32: three sawtooths that glide, and noise.

    Integer arithmetic only, so that it is the same everywhere. 32 frames and a rest, by default.
    """
    i = np.arange(n_samples, dtype=np.int64)
    glide = i * i // 40000
    saws = sum(
        ((i * f + glide * f) % 24000 - 12000) // d for f, d in ((140, 3), (700, 6), (2100, 9))
    )
    noise = np.random.PCG64(np.random.SeedSequence(5)).random_raw(n_samples).astype(np.int64)
    envelope = 600 + (i // 30) % 400
    ints = saws * envelope // 1000 + ((noise >> 52) & 0x7FF) - 1024
    return ints.astype(np.float32) / np.float32(32768)


def random_codes(n_frames: int, seed: int = 1) -> np.ndarray:
    """int32 [n_frames, 16], each 0..2047."""
    bits = np.random.PCG64(np.random.SeedSequence(seed)).random_raw(n_frames * 16)
    return (bits >> np.uint64(53)).astype(np.int32).reshape(n_frames, 16)


CODEC_FRAMES = 100
"""More than the decoder's window of 72."""
