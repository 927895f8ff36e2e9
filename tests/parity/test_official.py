"""The official package, live, against the goldens and against the plain computation from GGUF.

Models and texts beyond the goldens: fresh seeds, every frame instead of the first few, a codec of
the released size.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import make_goldens
import numpy as np
import pytest
from golden_cases import CASES, CODEC_FRAMES, MODELS, random_codes, reference_audio
from oracle_codec import SpeakerEncoder
from test_goldens import build_prompt

from phonate.engine.models.factory import Recipe

pytestmark = pytest.mark.skipif(
    find_spec("qwen_tts") is None, reason="needs the official package: ./tests/parity/run"
)

GOLDEN = Path(make_goldens.__file__).parent
TOLERANCE = 1e-4
FRESH_SEED = 20260


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_goldens_are_what_the_package_says_today(both, case, tmp_path):
    found = both(MODELS[case.model]).official.run(case)
    make_goldens.save(tmp_path / "now.npz", found, full=False)
    with np.load(tmp_path / "now.npz") as now, np.load(GOLDEN / f"{case.name}.npz") as golden:
        assert set(now) == set(golden)
        for key in golden:
            if golden[key].dtype.kind == "i":
                assert (now[key] == golden[key]).all(), key
            else:
                assert relative_error(now[key], golden[key]) < TOLERANCE, key


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_frames_with_fresh_weights(both, case):
    model = both(replace(MODELS[case.model], seed=FRESH_SEED))
    case = replace(case, text=case.text + " of it", max_frames=min(case.max_frames, 30))
    official = model.official.run(case)
    is_base = MODELS[case.model].kind == "base"
    audio = reference_audio()
    rows, trailing = build_prompt(
        model.talker,
        case,
        official,
        embedding=model.official.speaker_embedding(audio) if is_base else None,
        codes=model.official.encode(audio)[: case.reference],
    )
    assert relative_error(rows, official["prefill"]) < TOLERANCE
    codes = model.talker.generate(rows, trailing, case.max_frames)
    assert codes.tolist() == official["codes"].tolist()
    reference = model.official.encode(audio)[: case.reference]
    samples = model.codec.decode(np.concatenate([reference, codes]))
    assert np.abs(samples[len(reference) * 1920 :] - official["audio"]).max() < TOLERANCE


def test_a_codec_and_a_speaker_encoder_of_released_size(both):
    recipe = Recipe(kind="base", codec="full", seed=FRESH_SEED)
    model, audio = both(recipe), reference_audio(1920 * 6 + 700)
    codes = random_codes(12, seed=2)
    assert np.abs(model.codec.decode(codes) - model.official.decode(codes)).max() < TOLERANCE
    assert model.codec.encode(audio).tolist() == model.official.encode(audio).tolist()
    embedding = SpeakerEncoder(model.talker.file)(audio)
    assert relative_error(embedding, model.official.speaker_embedding(audio)) < TOLERANCE


@pytest.mark.parametrize("n_samples", [1920, 1921, 3839, 24000, CODEC_FRAMES * 1920])
def test_references_of_any_length(both, n_samples):
    model, audio = both(MODELS["tiny-base"]), reference_audio(n_samples)
    assert model.codec.encode(audio).tolist() == model.official.encode(audio).tolist()
    embedding = SpeakerEncoder(model.talker.file)(audio)
    assert relative_error(embedding, model.official.speaker_embedding(audio)) < TOLERANCE
