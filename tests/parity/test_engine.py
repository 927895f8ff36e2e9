"""The official package, live, against phonate's engine on our native library, by ear."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from golden_cases import CASES, MODELS, reference_audio

from phonate.engine.base import CancelToken, Reference, Sampling, SynthesisRequest

pytestmark = pytest.mark.skipif(
    find_spec("qwen_tts") is None, reason="needs the official package: ./tests/parity/run"
)

OURS = 6
"""The ABI of native/: only it reads a codec of any size and takes a text layout."""
TOLERANCE = 1e-4
GREEDY = Sampling(do_sample=False, subtalker_do_sample=False)


@pytest.fixture
def our_library(library):
    if library.abi < OURS:
        pytest.skip(f"needs our native library (make native), found ABI {library.abi}")
    return library


@pytest.fixture
def engine(both, our_library):
    from phonate.engine.qwen.engine import QwenEngine

    opened = []

    def open_one(recipe):
        files = both(recipe).files
        opened.append(QwenEngine(files.talker, files.codec, library=our_library))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_sound(both, engine, case):
    recipe = replace(MODELS[case.model], seed=7)
    official, ours = both(recipe).official, engine(recipe)
    expected = official.run(case)["audio"]
    reference = None
    if recipe.kind == "base":
        audio = reference_audio()
        reference = Reference(
            official.speaker_embedding(audio),
            official.encode(audio)[: case.reference] if case.reference else None,
            case.ref_text if case.reference else None,
        )
    chunks: list[np.ndarray] = []

    def sink(samples: np.ndarray) -> bool:
        chunks.append(samples.copy())
        return True

    result = ours.synthesize(
        SynthesisRequest(
            text=case.text,
            speaker=case.speaker.lower() if case.speaker else None,
            reference=reference,
            language=None if case.language == "auto" else case.language.lower(),
            instructions=case.instruct if case.model != "tiny-customvoice" else None,
            max_new_tokens=case.max_frames,
            sampling=GREEDY,
            text_layout="streaming" if case.streaming else "non_streaming",
        ),
        sink,
        CancelToken(),
    )
    found = np.concatenate(chunks)
    assert result.n_frames * 1920 == len(found) == len(expected)
    assert np.abs(found - expected).max() < TOLERANCE


@pytest.mark.parametrize("model", ["tiny-base", "tiny-base-proj"])
def test_the_same_voice(both, engine, model):
    official, audio = both(MODELS[model]).official, reference_audio()
    found = engine(MODELS[model]).extract_voice(audio, "the user")
    expected = official.speaker_embedding(audio)
    assert np.abs(found.embedding - expected).max() < TOLERANCE * np.abs(expected).max()
    assert found.codes.tolist() == official.encode(audio).tolist()
