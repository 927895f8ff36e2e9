"""Checkpoint -> GGUF -> the plain computation gives what the official package gives.

The models are made on the spot from their recipes; the goldens were written by make_goldens.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from golden_cases import CASES, CODEC_FRAMES, MODELS, Case, random_codes, reference_audio
from oracle import Talker
from oracle_codec import Codec, SpeakerEncoder

from phonate.engine.models.convert import convert_checkpoint
from phonate.engine.models.factory import make_checkpoint
from phonate.engine.models.model_files import ModelFiles

HERE = Path(__file__).parent
TOLERANCE = 1e-4
"""Of the largest value of a stage."""
FRAMES_COMPARED = 6
"""Of a case's greedy frames; `make parity` compares all of them."""


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, ModelFiles]]:
    """Name of a golden model -> (checkpoint, its float32 GGUFs)."""
    folder, cache = tmp_path_factory.mktemp("golden"), {}

    def make(name: str) -> tuple[Path, ModelFiles]:
        if name not in cache:
            make_checkpoint(MODELS[name], folder / name)
            cache[name] = folder / name, convert_checkpoint(folder / name, folder / name, "F32")
        return cache[name]

    return make


def close(found: np.ndarray, golden: Mapping[str, np.ndarray], key: str) -> None:
    """`found` against the stored array, thinned out as that one is."""
    stored = next(name for name in golden if name == key or name.startswith(f"{key}_every"))
    expected = golden[stored]
    step = int(stored.rpartition("_every")[2]) if stored != key else 1
    thinned = found[..., ::step]
    if key in {"audio", "codec_audio"}:
        thinned = thinned[..., : expected.shape[-1]]
        expected = expected[..., : thinned.shape[-1]]
    assert thinned.shape == expected.shape, key
    error = np.abs(thinned - expected).max() / np.abs(expected).max()
    assert error < TOLERANCE, f"{key}: {error:.1e}"


@pytest.mark.parametrize("name", MODELS)
def test_the_factory_makes_the_same_bytes_as_ever(made, name):
    expected = json.loads((HERE / "hashes.json").read_text())[name]
    checkpoint, _ = made(name)
    for file, digest in expected.items():
        assert hashlib.sha256((checkpoint / file).read_bytes()).hexdigest() == digest, file


@pytest.mark.parametrize("name", ["tiny-base", "tiny-base-proj"])
def test_codec_and_speaker_encoder(made, name):
    files = made(name)[1]
    codec, golden = Codec(files.codec), np.load(HERE / f"{name}.npz")
    audio = reference_audio()
    close(codec.decode(random_codes(CODEC_FRAMES)), golden, "codec_audio")
    close(SpeakerEncoder(Talker(files.talker).file)(audio), golden, "speaker_embedding")
    assert (codec.encode(audio) == golden["reference_codes"]).all()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_prompt_and_first_frames(made, case):
    files = made(case.model)[1]
    talker, golden = Talker(files.talker), np.load(HERE / f"{case.name}.npz")
    rows, trailing = golden_prompt(talker, case, golden)
    close(rows, golden, "prefill")

    hidden = talker.transformer(rows)
    close(np.stack([layer[-1] for layer in talker.transformer.layers]), golden, "prefill_layers")
    hiddens, codes = [hidden[-1]], golden["codes"].astype(int)
    predicted, seen = talker.predict(hidden[-1], codes[0, 0])
    assert predicted == codes[0].tolist()
    close(seen["inputs"], golden, "predictor_inputs")
    close(seen["hidden"], golden, "predictor_hidden")

    steps = []
    for t in range(3):
        text = trailing[t] if t < len(trailing) else talker.pad
        steps.append(talker.frame_row(codes[t]) + text)
        hiddens.append(talker.transformer(steps[-1][None])[-1])
    close(np.stack(steps), golden, "step_inputs")
    close(np.stack(hiddens), golden, "hidden")
    close(talker.logits(np.stack(hiddens)), golden, "logits")


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c.name in {"xvec-streaming", "proj-icl-streaming", "speaker-instruct"}],
    ids=lambda case: case.name,
)
def test_greedy_codes_and_their_sound(made, case):
    files = made(case.model)[1]
    talker, golden = Talker(files.talker), np.load(HERE / f"{case.name}.npz")
    rows, trailing = golden_prompt(talker, case, golden)
    codes = talker.generate(rows, trailing, FRAMES_COMPARED)
    assert (codes == golden["codes"][:FRAMES_COMPARED]).all()
    reference = reference_codes(case)
    audio = Codec(files.codec).decode(np.concatenate([reference, codes]))
    close(audio[len(reference) * 1920 :], golden, "audio")


def reference_codes(case: Case) -> np.ndarray:
    if not case.reference:
        return np.empty((0, 16), np.int32)
    return np.load(HERE / "tiny-base.npz")["reference_codes"][: case.reference]


def golden_prompt(
    talker: Talker, case: Case, golden: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, list[np.ndarray]]:
    parts = "tiny-base-proj" if "proj" in case.model else "tiny-base"
    embedding = np.load(HERE / f"{parts}.npz")["speaker_embedding"]
    return build_prompt(
        talker,
        case,
        golden,
        embedding=embedding if MODELS[case.model].kind == "base" else None,
        codes=reference_codes(case),
    )


def build_prompt(
    talker: Talker,
    case: Case,
    ids: Mapping[str, np.ndarray],
    *,
    embedding: np.ndarray | None,
    codes: np.ndarray,
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Prompt rows and trailing text of a case, from the token ids of the official package."""
    return talker.prompt(
        ids["input_ids"],
        language=case.language,
        speaker=case.speaker,
        embedding=embedding,
        instruct_ids=ids.get("instruct_ids", ()),
        ref_ids=ids["ref_ids"] if case.reference else (),
        ref_codes=codes if case.reference else None,
        streaming=case.streaming,
    )
