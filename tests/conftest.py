"""Fixtures: a running server, and what tests of a native library or a model need.

`PHONATE_TEST_LIBRARY` names the library under test (a path, or a short name as --library takes
it); without it, an installed one is used, our own first. Models are made once, small and random,
and kept in pytest's cache under a key of the code that makes them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import Running, running

os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # an abort would start a debugger

from phonate.engine.models import factory
from phonate.engine.models.convert import ModelFiles
from phonate.engine.models.factory import Recipe, make_model
from phonate.engine.qwen.library import Library
from phonate.engine.qwen.library_search import find_library
from phonate.engine.scripted import ScriptedEngine
from phonate.errors import SetupError

MODELS: dict[str, Recipe] = {
    "base": Recipe(kind="base"),
    # The end of speech comes by itself, after some frames.
    "base-ends": Recipe(kind="base", eos_gain=2.5, seed=3),
    "customvoice": Recipe(kind="customvoice"),
    "customvoice-large": Recipe(kind="customvoice", size="tiny-proj"),
    "voicedesign": Recipe(kind="voicedesign"),
    "full-codec": Recipe(kind="base", codec="full"),
}
STALE_S = 24 * 3600.0


@pytest.fixture
def scripted() -> Iterator[Running]:
    """A running server around the scripted engine with its default script."""
    with running(ScriptedEngine()) as server:
        yield server


@pytest.fixture(scope="session")
def library() -> Library:
    wanted = os.environ.get("PHONATE_TEST_LIBRARY")
    try:
        return find_library(wanted)
    except SetupError as exc:
        if wanted:
            raise
        pytest.skip(f"no native library here: {exc}")


@pytest.fixture(scope="session")
def model_cache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pytest's cache, or a temporary folder when it is switched off."""
    cache = getattr(request.config, "cache", None)
    return cache.mkdir("phonate-models") if cache else tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def made_model(model_cache: Path) -> Callable[[str], ModelFiles]:
    """Name of MODELS -> its GGUF files as the recipe has them."""
    sources = sorted(Path(factory.__file__).parent.glob("factory*.py"))
    sources += [Path(factory.__file__).with_name(name) for name in ("convert.py", "gguf_types.py")]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources))

    def make(name: str) -> ModelFiles:
        recipe = MODELS[name]
        key = hashlib.sha256(digest.digest() + repr(recipe).encode()).hexdigest()[:16]
        folder = model_cache / f"{name}-{key}"
        files = ModelFiles(folder / "talker-F32.gguf", folder / "codec-F32.gguf")
        if not folder.is_dir():
            for stale in folder.parent.glob(f"{name}-????????????????"):
                if time.time() - stale.stat().st_mtime > STALE_S:  # else another run may use it
                    shutil.rmtree(stale)
            work = folder.with_name(f"{folder.name}.{os.getpid()}")
            make_model(recipe, work)
            shutil.rmtree(work / "speech_tokenizer")
            (work / "model.safetensors").unlink()
            if folder.is_dir():  # another run was faster
                shutil.rmtree(work)
            else:
                work.rename(folder)
        return files

    return make


@pytest.fixture(scope="session")
def model_files(
    library: Library, made_model: Callable[[str], ModelFiles]
) -> Callable[[str], ModelFiles]:
    """Name of MODELS -> files that the library under test can load."""

    def fitting(name: str) -> ModelFiles:
        files = made_model(name)
        if library.traits.any_codec_size:
            return files
        return ModelFiles(files.talker, made_model("full-codec").codec)

    return fitting
