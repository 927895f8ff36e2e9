"""Random models made on the spot, in the float and quantised types the tests ask for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import qtlib

GOLDEN = Path(__file__).parents[1] / "golden"
sys.path.insert(0, str(GOLDEN))

from golden_cases import MODELS  # noqa: E402

from phonate.engine.models.convert import convert_checkpoint  # noqa: E402
from phonate.engine.models.factory import make_checkpoint  # noqa: E402
from phonate.engine.models.model_files import ModelFiles  # noqa: E402

Made = Callable[..., ModelFiles]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """(name of a golden model, GGUF type) -> its files."""
    folder, cache = tmp_path_factory.mktemp("models"), {}

    def make(name: str, file_type: str = "F32") -> ModelFiles:
        if not (folder / name).exists():
            make_checkpoint(MODELS[name], folder / name)
        if (name, file_type) not in cache:
            cache[name, file_type] = convert_checkpoint(folder / name, folder / name, file_type)
        return cache[name, file_type]

    return make


@pytest.fixture(scope="session")
def context(made: Made) -> Iterator[Callable[..., qtlib.Context]]:
    """(name, type, init fields) -> a loaded context, shared by the whole session."""
    cache: dict[Any, qtlib.Context] = {}

    def load(name: str = "tiny-base", file_type: str = "F32", **init: Any) -> qtlib.Context:
        key = (name, file_type, *sorted(init.items()))
        if key not in cache:
            files = made(name, file_type)
            cache[key] = qtlib.Context(files.talker, files.codec, **init)
        return cache[key]

    yield load
    for loaded in cache.values():
        loaded.close()


@pytest.fixture(scope="session")
def voice() -> dict[str, Any]:
    """An x-vector for tiny-base, as fields of qt_tts_params."""
    embedding = np.load(GOLDEN / "tiny-base.npz")["speaker_embedding"]
    return {"ref_spk_emb": embedding, "ref_spk_dim": len(embedding)}


@pytest.fixture(scope="session")
def icl_voice(voice: dict[str, Any]) -> dict[str, Any]:
    """The same with eight reference frames and their text."""
    codes = np.load(GOLDEN / "tiny-base.npz")["reference_codes"][:8].T.astype(np.int32)
    return {**voice, "ref_codes": codes, "ref_T": 8, "ref_text": "and you"}
