"""A Qwen3-TTS checkpoint directory -> its two GGUF files, talker and codec.

Tensors go through in pieces of a few megabytes, so memory stays bounded; each file is written
beside its final name and renamed when it is whole. Needs the `convert` extra (the `gguf` package).
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from phonate.engine.models import gguf_metadata
from phonate.engine.models.checkpoint import Weights, read_checkpoint
from phonate.engine.models.gguf_metadata import Entry
from phonate.engine.models.gguf_types import Rows, encode, encoded_size, file_type, tensor_type
from phonate.engine.models.model_files import ModelFiles
from phonate.engine.models.progress import Progress, silent
from phonate.engine.models.talker_tensors import Role, TensorSpec, codec_tensors, talker_tensors
from phonate.errors import SetupError

__all__ = ["ModelFiles", "convert_checkpoint"]

PIECE_ELEMENTS = 1 << 21
"""Elements converted at a time: 8 MiB of float32."""

MIN_USAGE = 1e-5
"""A codebook row's count is never taken below this (the official package does the same)."""


def convert_checkpoint(
    checkpoint: Path,
    out_dir: Path,
    kind: str = "Q8_0",
    *,
    codec_kind: str | None = None,
    name: str | None = None,
    progress: Progress = silent,
) -> ModelFiles:
    """Write `talker-KIND.gguf` and `codec-KIND.gguf` into `out_dir`.

    `kind` is one of gguf_types.FILE_TYPES; `codec_kind` is the same unless given; `name` replaces
    general.name. Raises SetupError for a directory, a configuration, a tensor or a type that is
    not what it should be; then nothing is left behind.
    """
    import_gguf()
    kind, codec_kind = file_type(kind), file_type(codec_kind or kind)
    source = read_checkpoint(checkpoint)
    talker = _Output(
        out_dir / f"talker-{kind}.gguf",
        gguf_metadata.TALKER,
        gguf_metadata.talker(source.config, source.generation, source.tokenizer, name),
        list(talker_tensors(source.config)),
        kind,
    )
    codec = _Output(
        out_dir / f"codec-{codec_kind}.gguf",
        gguf_metadata.CODEC,
        gguf_metadata.codec(source.codec_config),
        list(codec_tensors(source.codec_config)),
        codec_kind,
    )
    with (
        Weights(checkpoint) as talker_weights,
        Weights(checkpoint / "speech_tokenizer") as codec_weights,
    ):
        # Both are checked before the first long write.
        talker_weights.check(talker.specs)
        codec_weights.check(codec.specs)
        try:
            out_dir.mkdir(parents=True, exist_ok=True)
            _write(talker, talker_weights, progress)
            _write(codec, codec_weights, progress)
        except OSError as error:
            raise SetupError(f"Cannot write into {out_dir}: {error.strerror}.") from error
    return ModelFiles(talker.path, codec.path)


@dataclass(frozen=True, slots=True)
class _Output:
    path: Path
    architecture: str
    entries: list[Entry]
    specs: list[TensorSpec]
    kind: str


def _write(output: _Output, weights: Weights, progress: Progress) -> None:
    """One GGUF file, whole or not at all."""
    gguf = import_gguf()
    path = output.path
    kept = [
        (spec, tensor_type(spec, output.kind)) for spec in output.specs if spec.gguf is not None
    ]
    total = sum(encoded_size(math.prod(spec.shape), kind) for spec, kind in kept)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    try:
        writer = gguf.GGUFWriter(temporary, output.architecture)
        try:
            for entry in output.entries:
                _add_entry(writer, entry)
            for spec, kind in kept:
                size = encoded_size(math.prod(spec.shape), kind)
                raw_type = gguf.GGMLQuantizationType[kind]
                writer.add_tensor_info(spec.gguf, spec.shape, np.dtype(np.float32), size, raw_type)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            done = 0
            for spec, kind in kept:
                stream = _TensorStream(
                    weights, spec, kind, done, lambda n: progress(path.name, n, total)
                )
                writer.write_tensor_data(stream)
                done += stream.nbytes
        finally:
            writer.close()
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def import_gguf() -> Any:
    """The optional package; SetupError says how to install it."""
    try:
        import gguf
    except ImportError as error:
        raise SetupError(
            "Converting needs the gguf package: pip install 'phonate[convert]'."
        ) from error
    return gguf


def _add_entry(writer: Any, entry: Entry) -> None:
    key, kind, value = entry
    if kind.endswith("[]"):
        writer.add_array(key, value)
    else:
        adders: dict[str, Callable[[str, Any], None]] = {
            "u32": writer.add_uint32,
            "f32": writer.add_float32,
            "bool": writer.add_bool,
            "str": writer.add_string,
        }
        adders[kind](key, value)


class _TensorStream:
    """Stands for an array in GGUFWriter.write_tensor_data, which asks for its size and tells it to
    write itself: this one encodes and writes piece by piece."""

    def __init__(
        self, weights: Weights, spec: TensorSpec, kind: str, done: int, tell: Callable[[int], None]
    ) -> None:
        self.nbytes = encoded_size(math.prod(spec.shape), kind)
        self._weights = weights
        self._spec = spec
        self._kind = kind
        self._done = done
        self._tell = tell

    def tofile(self, out: IO[bytes]) -> None:
        spec = self._spec
        file = self._weights.file_of(spec.name)
        n_rows, row = spec.shape[0], math.prod(spec.shape[1:])
        step = max(1, PIECE_ELEMENTS // row)
        for first in range(0, n_rows, step):
            count = min(step, n_rows - first)
            rows = self._normalised(file.rows(spec.name, first, count), first)
            # The last dimension is what a quantisation block runs along.
            data = encode(rows.reshape(-1, spec.shape[-1]) if row > 1 else rows, self._kind)
            out.write(data.data)
            self._done += data.nbytes
            self._tell(self._done)

    def _normalised(self, rows: Rows, first: int) -> Rows:
        if self._spec.role is not Role.CODEBOOK or self._spec.usage is None:
            return rows
        usage = self._weights.file_of(self._spec.usage).rows(self._spec.usage, first, len(rows))
        normalised: Rows = rows / np.maximum(usage, np.float32(MIN_USAGE))
        return normalised
