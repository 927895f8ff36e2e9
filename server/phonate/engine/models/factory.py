"""Random checkpoints of the right architecture, in the official layout: `phonate dev make-model`.

They say nothing sensible, but everything that loads, converts, streams, clones and measures a
model can be tested on them. The numbers are the same on every machine: PCG64's raw 64-bit words,
cut into 16-bit integers, times one float32 factor per tensor; each tensor has a stream of its own,
seeded with the recipe's seed and the tensor's name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from phonate.engine.models.convert import convert_checkpoint, import_gguf
from phonate.engine.models.factory_configs import (
    CODEC_PREPROCESSOR_CONFIG,
    CODEC_SIZES,
    GENERATION_CONFIG,
    KINDS,
    PREPROCESSOR_CONFIG,
    TALKER_SIZES,
    codec_config,
    model_config,
)
from phonate.engine.models.factory_tokenizer import RELEASED_VOCAB, small_tokenizer
from phonate.engine.models.factory_weights import pieces
from phonate.engine.models.model_files import ModelFiles
from phonate.engine.models.progress import Progress, silent
from phonate.engine.models.safetensors_file import DTYPE_BYTES, TensorToWrite, write_safetensors
from phonate.engine.models.talker_tensors import TensorSpec, codec_tensors, talker_tensors
from phonate.errors import SetupError


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a checkpoint is made of; the same recipe gives the same bytes.

    kind: base, customvoice, voicedesign. size: a key of TALKER_SIZES. codec: tiny or full; None
    takes the one that belongs to the size. dtype: of the talker's weights in the checkpoint, BF16
    (as released) or F32. eos_gain: how loud the end-of-speech row of the codec head is; with 1 the
    end hardly ever comes, about 1.8 ends a greedy utterance after some dozens of frames.
    """

    kind: str = "base"
    size: str = "tiny"
    codec: str | None = None
    seed: int = 0
    dtype: str = "BF16"
    eos_gain: float = 1.0

    def __post_init__(self) -> None:
        for field, allowed in (
            ("kind", tuple(KINDS)),
            ("size", tuple(TALKER_SIZES)),
            ("codec", (None, *CODEC_SIZES)),
            ("dtype", ("BF16", "F32")),
        ):
            value = getattr(self, field)
            if value not in allowed:
                choices = ", ".join(name for name in allowed if name is not None)
                raise SetupError(f"--{field} {value}: choose one of {choices}.", param=field)
        if not 0 <= self.seed < 1 << 32:
            raise SetupError(f"--seed {self.seed}: choose 0 to {(1 << 32) - 1}.", param="seed")
        if not 0 <= self.eos_gain <= 100:
            raise SetupError(f"--eos-gain {self.eos_gain}: choose 0 to 100.", param="eos_gain")

    @property
    def is_tiny(self) -> bool:
        return self.size.startswith("tiny")

    @property
    def codec_size(self) -> str:
        return self.codec or ("tiny" if self.is_tiny else "full")


def make_model(
    recipe: Recipe,
    directory: Path,
    kind: str = "F32",
    *,
    codec_kind: str | None = None,
    progress: Progress = silent,
) -> ModelFiles:
    """A checkpoint in `directory`, then `talker-KIND.gguf` and `codec-KIND.gguf` beside it."""
    import_gguf()
    make_checkpoint(recipe, directory, progress=progress)
    return convert_checkpoint(directory, directory, kind, codec_kind=codec_kind, progress=progress)


def make_checkpoint(recipe: Recipe, directory: Path, *, progress: Progress = silent) -> None:
    """Write the checkpoint's files. Raises SetupError when the directory cannot be written."""
    size = TALKER_SIZES[recipe.size]
    tokenizer = small_tokenizer(None if recipe.is_tiny else RELEASED_VOCAB)
    config = model_config(recipe.kind, size, tokenizer.text_ids)
    codec = codec_config(CODEC_SIZES[recipe.codec_size])
    try:
        codec_dir = directory / "speech_tokenizer"
        codec_dir.mkdir(parents=True, exist_ok=True)
        tokenizer.write(directory)
        for path, value in (
            (directory / "config.json", config),
            (directory / "generation_config.json", GENERATION_CONFIG),
            (directory / "preprocessor_config.json", PREPROCESSOR_CONFIG),
            (codec_dir / "config.json", codec),
            (codec_dir / "preprocessor_config.json", CODEC_PREPROCESSOR_CONFIG),
        ):
            path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
        for path, specs, dtype in (
            (directory / "model.safetensors", talker_tensors(config), recipe.dtype),
            (codec_dir / "model.safetensors", codec_tensors(codec), "F32"),
        ):
            label = str(path.relative_to(directory))
            for done, total in _write_weights(path, list(specs), recipe, dtype):
                progress(label, done, total)
    except OSError as error:
        raise SetupError(f"Cannot write {directory}: {error.strerror}.") from error


def _write_weights(
    path: Path, specs: list[TensorSpec], recipe: Recipe, dtype: str
) -> Iterator[tuple[int, int]]:
    """Yields (bytes written, bytes in all)."""
    total = sum(DTYPE_BYTES[dtype] * math.prod(spec.shape) for spec in specs)
    done = 0
    tensors = [
        TensorToWrite(
            spec.name, dtype, spec.shape, pieces(spec, recipe.seed, dtype, recipe.eos_gain)
        )
        for spec in specs
    ]
    for _, size in write_safetensors(path, tensors):
        done += size
        yield done, total
