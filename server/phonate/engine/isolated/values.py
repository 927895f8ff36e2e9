"""The values of the engine protocol as fields and bytes, and back.

Every `unpack_` raises KeyError, TypeError or ValueError for what no `pack_` made.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from phonate import errors
from phonate.engine.base import (
    EngineInfo,
    Reference,
    Sampling,
    Speaker,
    SynthesisRequest,
    SynthesisResult,
)
from phonate.engine.models.model_files import ModelFiles
from phonate.engine.models.resolve import ResolvedModel
from phonate.errors import PhonateError

Fields: TypeAlias = dict[str, Any]
Packed: TypeAlias = tuple[Fields, bytes]
_Array: TypeAlias = npt.NDArray[Any]


class ForeignError(Exception):
    """An exception that is none of ours, from the engine's process: a bug, with its traceback."""


def pack_model(model: ResolvedModel | None) -> Fields | None:
    if model is None:
        return None
    files = model.files
    return {"talker": str(files.talker), "codec": str(files.codec), "id": model.id}


def unpack_model(fields: Fields | None) -> ResolvedModel | None:
    if fields is None:
        return None
    files = ModelFiles(Path(fields["talker"]), Path(fields["codec"]))
    return ResolvedModel(files, fields["id"])


def pack_info(info: EngineInfo) -> Fields:
    return dataclasses.asdict(info)


def unpack_info(fields: Fields) -> EngineInfo:
    speakers = tuple(Speaker(**speaker) for speaker in fields["speakers"])
    return EngineInfo(**{**fields, "languages": tuple(fields["languages"]), "speakers": speakers})


def pack_request(request: SynthesisRequest) -> Packed:
    # Field by field, without asdict: that would copy the arrays, and not know them.
    fields = {f.name: getattr(request, f.name) for f in dataclasses.fields(request)}
    fields["sampling"] = dataclasses.asdict(request.sampling)
    reference, body = pack_reference(request.reference)
    return {**fields, "reference": reference or None}, body


def unpack_request(fields: Fields, body: bytearray) -> SynthesisRequest:
    reference = unpack_reference(fields["reference"], body) if fields["reference"] else None
    return SynthesisRequest(
        **{**fields, "sampling": Sampling(**fields["sampling"]), "reference": reference}
    )


def pack_result(result: SynthesisResult) -> Fields:
    return dataclasses.asdict(result)


def unpack_result(fields: Fields) -> SynthesisResult:
    return SynthesisResult(**fields)


def pack_reference(reference: Reference | None) -> Packed:
    if reference is None:
        return {}, b""
    shapes, body = _pack_arrays([reference.embedding, reference.codes])
    return {"arrays": shapes, "text": reference.text}, body


def unpack_reference(fields: Fields, body: bytearray) -> Reference:
    embedding, codes = _unpack_arrays(fields["arrays"], body)
    if embedding is None:
        raise ValueError("a reference without an embedding")
    return Reference(embedding, codes, fields["text"])


def pack_recording(audio: _Array, text: str | None) -> Packed:
    shapes, body = _pack_arrays([audio])
    return {"arrays": shapes, "text": text}, body


def unpack_recording(fields: Fields, body: bytearray) -> tuple[_Array, str | None]:
    (audio,) = _unpack_arrays(fields["arrays"], body)
    if audio is None:
        raise ValueError("a recording without audio")
    return audio, fields["text"]


def pack_chunk(samples: _Array) -> bytes:
    return np.asarray(samples, "<f4").tobytes()


def unpack_chunk(body: bytearray) -> npt.NDArray[np.float32]:
    """Writable, like what an engine hands out."""
    return np.frombuffer(body, "<f4").astype(np.float32, copy=False)


def pack_error(error: BaseException, trace: str = "") -> Fields:
    """trace: told where the error is none of our tree."""
    if not isinstance(error, PhonateError):
        return {"type": "", "message": trace or f"{type(error).__name__}: {error}"}
    # Whatever else an error carries (retry_after_s, reason) is a plain attribute.
    return {"type": type(error).__name__, "attributes": dict(vars(error))}


def unpack_error(fields: Fields) -> Exception:
    """The same class, message and further facts."""
    if not fields["type"]:
        return ForeignError(f"in the engine's process: {fields['message']}")
    kind = getattr(errors, fields["type"], None)
    if not (isinstance(kind, type) and issubclass(kind, PhonateError)):
        raise TypeError(f"{fields['type']} is no error of ours")
    attributes = fields["attributes"]
    error = kind.__new__(kind)
    PhonateError.__init__(error, str(attributes["message"]), param=attributes["param"])
    vars(error).update(attributes)
    return error


def _pack_arrays(arrays: Sequence[_Array | None]) -> tuple[list[Fields | None], bytes]:
    whole = [None if a is None else np.ascontiguousarray(a) for a in arrays]
    shapes = [None if a is None else {"dtype": a.dtype.str, "shape": list(a.shape)} for a in whole]
    return shapes, b"".join(a.tobytes() for a in whole if a is not None)


def _unpack_arrays(shapes: list[Fields | None], body: bytearray) -> list[_Array | None]:
    arrays: list[_Array | None] = []
    start = 0
    for shape in shapes:
        if shape is None:
            arrays.append(None)
            continue
        dtype, n = np.dtype(shape["dtype"]), math.prod(shape["shape"])
        if dtype.kind not in "fiu":
            raise TypeError(f"an array of {dtype} is not expected")
        flat = np.frombuffer(body, dtype, n, start) if n else np.zeros(0, dtype)
        arrays.append(flat.reshape(shape["shape"]))
        start += n * dtype.itemsize
    return arrays
