"""Makes voices/: starter voices in the store's own format, spoken by the built-in voice.

    python tools/make_starter_voices.py [FOLDER]

The same text, seed and versions give the same bytes, so a diff means a change.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import soxr
from hibari import Hibari

from phonate.voices.draft import Details, draft_of_recording
from phonate.voices.folders import write_folder
from phonate.voices.manifest import FileSeal, Manifest
from phonate.voices.store import VOICE_SCHEMA, voice_to_dict

CREATED_AT = 1_796_083_200  # 2026-12-01
RMS, MAX_PEAK = 0.09, 0.9
"""About -21 dBFS: as loud as each other, and nothing near clipping."""


@dataclass(frozen=True)
class Recipe:
    name: str
    description: str
    text: str
    speed: float
    pitch: float
    """Factor on every frequency, formants included: below 1 it sounds like a larger person."""


RECIPES = (
    Recipe(
        "Lark",
        "clear and lively; synthetic",
        "Good morning! The windows are open, the kettle is on, and there is a whole quiet day "
        "ahead of us.",
        speed=0.95,
        pitch=1.0,
    ),
    Recipe(
        "Merle",
        "low and calm; synthetic",
        "Every evening the lamps along the river come on, one after another, and the city slows "
        "down to a walk.",
        speed=1.0,
        pitch=0.82,
    ),
)

LICENSE = """\
{name}: where this recording comes from, and what you may do with it

No person was recorded. The audio is synthetic speech made with hibari-tts {hibari} by Maureese
Williams (Apache-2.0), voice "heart"{changed}.
tools/make_starter_voices.py makes it again.

According to its NOTICE file, hibari's voice was distilled from the voice af_heart of Kokoro-82M
by hexgrad (Apache-2.0). That licence is about software and model weights and says nothing about
the audio that is made with them. We did not look into what Kokoro-82M was trained on.

As far as we, the authors of phonate, hold rights in this recording and its transcript, we give
them up under CC0 1.0 (https://creativecommons.org/publicdomain/zero/1.0/). We can speak only for
ourselves.
"""


def speak(recipe: Recipe) -> np.ndarray:
    """float32 [n], mono, 24 kHz."""
    voice = Hibari()
    samples = np.asarray(voice(recipe.text, speed=recipe.speed / recipe.pitch, seed=7), np.float32)
    assert voice.sample_rate == 24_000
    if recipe.pitch != 1:
        samples = resampled(samples, round(24_000 * recipe.pitch))
    gain = min(RMS / np.sqrt(np.square(samples).mean()), MAX_PEAK / np.abs(samples).max())
    return samples * np.float32(gain)


def resampled(samples: np.ndarray, played_at: int) -> np.ndarray:
    """What is heard when 24 kHz samples are played at another rate."""
    return soxr.resample(samples, played_at, 24_000)


def make(recipe: Recipe, root: Path) -> None:
    details = Details.clean(
        name=recipe.name,
        language="english",
        description=recipe.description,
        ref_text=recipe.text,
    )
    draft = draft_of_recording(details, speak(recipe))
    seals = {name: FileSeal.of(data) for name, data in draft.files.items()}
    manifest = Manifest(
        VOICE_SCHEMA.format,
        VOICE_SCHEMA.version,
        voice_to_dict(draft.to_voice(CREATED_AT)),
        seals,
    )
    changed = "" if recipe.pitch == 1 else f", every frequency multiplied by {recipe.pitch:g}"
    licence = LICENSE.format(name=recipe.name, hibari=version("hibari-tts"), changed=changed)
    folder = root / recipe.name.lower()
    shutil.rmtree(folder, ignore_errors=True)
    files = {**draft.files, "LICENSE": licence.encode(), "voice.json": manifest.to_bytes()}
    write_folder(folder, files)
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)  # public, unlike what people register
    print(f"{folder}: {len(draft.files['reference.wav']) / 48_000:.1f} s")


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "voices"
    target.mkdir(exist_ok=True)
    for recipe in RECIPES:
        make(recipe, target)
