"""Random models in the official package and, converted, in our hands."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "golden"))

from oracle import Talker
from oracle_codec import Codec

from phonate.engine.models.convert import convert_checkpoint
from phonate.engine.models.factory import Recipe, make_checkpoint
from phonate.engine.models.model_files import ModelFiles


@dataclass
class Both:
    """One random model: `checkpoint` for the official package, `files` for everybody else."""

    checkpoint: Path
    files: ModelFiles

    @cached_property
    def official(self):
        from official import Official

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Official(self.checkpoint)

    @cached_property
    def talker(self) -> Talker:
        return Talker(self.files.talker)

    @cached_property
    def codec(self) -> Codec:
        return Codec(self.files.codec)


@pytest.fixture(scope="session")
def both(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Recipe], Both]:
    folder = tmp_path_factory.mktemp("parity")
    made: dict[Recipe, Both] = {}

    def make(recipe: Recipe) -> Both:
        if recipe not in made:
            checkpoint = folder / str(len(made))
            make_checkpoint(recipe, checkpoint)
            made[recipe] = Both(checkpoint, convert_checkpoint(checkpoint, checkpoint, "F32"))
        return made[recipe]

    return make


@pytest.fixture(autouse=True)
def _official_package_may_warn() -> None:
    """Its warnings are not ours to fix; the suite turns warnings into errors."""
    warnings.simplefilter("ignore")
