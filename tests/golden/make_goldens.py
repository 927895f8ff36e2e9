"""Write the golden files: `python tests/golden/make_goldens.py [--full] [OUT_DIR]`.

Runs in the environment of tests/parity (it needs the official package) with `server` on the path.
Without --full, what is committed: big arrays thinned out to every nth column, under the name
`<key>_every<n>`. Makes a random checkpoint per model, in a temporary folder.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "parity"), str(HERE.parent.parent / "server")]

from golden_cases import CASES, MODELS, TOKENIZER_TEXTS, Case  # noqa: E402
from official import Official  # noqa: E402

from phonate.engine.models.factory import make_checkpoint  # noqa: E402

THIN = {
    "prefill": 2,
    "prefill_layers": 2,
    "step_inputs": 4,
    "logits": 16,
    "predictor_inputs": 4,
    "predictor_hidden": 2,
    "audio": 32,
    "codec_audio": 32,
}
"""Array -> every how manieth element of its last axis is kept."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", nargs="?", type=Path, default=HERE)
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    index = {}
    for name, recipe in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = Path(folder)
            make_checkpoint(recipe, checkpoint)
            official = Official(checkpoint)
            index[name] = hashes(checkpoint)
            write_model(official, name, options.out, full=options.full)
            if name == "tiny-base":
                write_tokenizer(official, options.out)
    (options.out / "hashes.json").write_text(json.dumps(index, indent=1) + "\n")


def hashes(checkpoint: Path) -> dict[str, str]:
    return {
        name: hashlib.sha256((checkpoint / name).read_bytes()).hexdigest()
        for name in ("model.safetensors", "speech_tokenizer/model.safetensors")
    }


def write_model(official: Official, name: str, out: Path, *, full: bool) -> None:
    with_encoder = MODELS[name].kind == "base"
    if name in {"tiny-base", "tiny-base-proj"}:  # the codec is the same everywhere
        save(out / f"{name}.npz", official.parts(with_encoder=with_encoder), full=full)
    for case in CASES:
        if case.model == name:
            save(out / f"{case.name}.npz", official.run(case), full=full)
            print(f"{name}: {describe(case, out)}", flush=True)


def describe(case: Case, out: Path) -> str:
    with np.load(out / f"{case.name}.npz") as arrays:
        return f"{case.name} {arrays['codes'].shape[0]} frames"


def save(path: Path, arrays: dict[str, np.ndarray], *, full: bool) -> None:
    if not full:
        arrays = {
            (f"{key}_every{THIN[key]}" if key in THIN else key): (
                value[..., :: THIN[key]] if key in THIN else value
            )
            for key, value in arrays.items()
        }
    np.savez_compressed(path, **arrays)


def write_tokenizer(official: Official, out: Path) -> None:
    texts = [
        {
            "text": text,
            "ids": official.tokenize(text).tolist(),
            "pieces": official.split(text),
        }
        for text in TOKENIZER_TEXTS
    ]
    (out / "tokenizer.json").write_text(json.dumps(texts, indent=1) + "\n")


if __name__ == "__main__":
    main()
