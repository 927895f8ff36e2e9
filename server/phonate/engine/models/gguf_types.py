"""Which GGUF type each tensor gets, and the arithmetic behind each type.

A file type (what a person asks for) is a tensor type for the big matrices and a finer one for the
embeddings, whose errors add up: 16 of their rows are summed into every step. Always float32:
vectors, norms, biases, scales, everything of the quantisers (`*.vq_*`), and the speaker encoder's
last layer. A row that the block size does not divide (a convolution's row is its kernel, 1 to 16
long) falls back to float16.

P4 and P5 are our own mixtures of ggml's types: as few bits as the native engine multiplies in
without requantising, with searched scales, where a frame reads most; 8 bits where it reads little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from phonate.engine.models.gguf_kquants import encode_q4_k, encode_q5_k, encode_q6_k
from phonate.engine.models.gguf_searched import encode_q4_0, encode_q5_0
from phonate.engine.models.talker_tensors import Role, TensorSpec
from phonate.errors import SetupError

Rows: TypeAlias = npt.NDArray[np.float32]
"""[rows, elements per row]"""


@dataclass(frozen=True, slots=True)
class FileType:
    matrix: str
    embedding: str
    others: tuple[tuple[str, str], ...] = ()
    """(pattern of names in the file, type): the first that fits decides."""


def _language_model(talker: str, predictor: str) -> tuple[tuple[str, str], ...]:
    """Of `P` types. The last matrix of each talker layer, whose inputs have the largest outliers,
    stays in 8 bits; the table of text tokens, a third of such a file, is read a row at a time."""
    return (
        ("talker.blk.*.ffn_down.weight", "Q8_0"),
        ("talker.blk.*", talker),
        ("talker.text_embd.weight", "Q6_K"),
        ("code_pred.codec_embd.*", "Q8_0"),
        ("code_pred.*", predictor),
    )


FILE_TYPES: dict[str, FileType] = {
    "F32": FileType("F32", "F32"),
    "F16": FileType("F16", "F16"),
    "BF16": FileType("BF16", "BF16"),
    "Q8_0": FileType("Q8_0", "Q8_0"),
    "Q6_K": FileType("Q6_K", "Q8_0"),
    "Q5_K_M": FileType("Q5_K", "Q6_K"),
    "Q4_K_M": FileType("Q4_K", "Q6_K"),
    "Q4_0": FileType("Q4_0", "Q8_0"),
    "P5": FileType("Q8_0", "Q8_0", _language_model("Q5_0", "Q5_0")),
    "P4": FileType("Q8_0", "Q8_0", _language_model("Q5_0", "Q4_0")),
}

BLOCKS: dict[str, tuple[int, int]] = {
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "Q8_0": (32, 34),
    "Q5_0": (32, 22),
    "Q4_0": (32, 18),
    "Q6_K": (256, 210),
    "Q5_K": (256, 176),
    "Q4_K": (256, 144),
}
"""Tensor type -> (elements per block, bytes per block)."""


def file_type(name: str) -> str:
    """The known spelling of a file type; SetupError lists them."""
    known = {key.upper(): key for key in FILE_TYPES}
    try:
        return known[name.upper()]
    except KeyError:
        raise SetupError(
            f"Cannot write GGUF type {name!r}. Types that can be written: {', '.join(FILE_TYPES)}."
        ) from None


def tensor_type(spec: TensorSpec, wanted: str) -> str:
    """The type of one tensor in a file of type `wanted`, one of FILE_TYPES."""
    name = spec.gguf or ""
    if len(spec.shape) == 1 or ".vq_" in name or name.startswith("spk_enc.fc."):
        return "F32"
    mix = FILE_TYPES[wanted]
    kind = mix.embedding if spec.role is Role.EMBEDDING else mix.matrix
    kind = next((other for pattern, other in mix.others if fnmatchcase(name, pattern)), kind)
    return kind if spec.shape[-1] % BLOCKS[kind][0] == 0 else "F16"


def encoded_size(n_elements: int, kind: str) -> int:
    per_block, size = BLOCKS[kind]
    return n_elements // per_block * size


def encode(rows: Rows, kind: str) -> npt.NDArray[Any]:
    """float32 rows -> the bytes of that type, as a C-contiguous array."""
    return np.ascontiguousarray(_ENCODERS[kind](rows))


def _gguf(kind: str) -> Callable[[Rows], npt.NDArray[Any]]:
    def run(rows: Rows) -> npt.NDArray[Any]:
        import gguf

        encoded: npt.NDArray[Any] = gguf.quants.quantize(rows, gguf.GGMLQuantizationType[kind])
        return encoded

    return run


_ENCODERS: dict[str, Callable[[Rows], npt.NDArray[Any]]] = {
    **{kind: _gguf(kind) for kind in ("F32", "F16", "BF16", "Q8_0")},
    "Q5_0": encode_q5_0,
    "Q4_0": encode_q4_0,
    "Q6_K": encode_q6_k,
    "Q5_K": encode_q5_k,
    "Q4_K": encode_q4_k,
}
