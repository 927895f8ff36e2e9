"""Files of the types P4 and P5 in the native engine: read without requantising."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import qtlib
from gguf import GGMLQuantizationType as Type
from test_costs import costs

FAST = 1
TEXT = "Hello world."


def as_q8_0(tensor: gguf.ReaderTensor) -> np.ndarray:
    """The same numbers in Q8_0: the scale stays, the codes lose their offset."""
    zero = {Type.Q4_0: 8, Type.Q5_0: 16}[tensor.tensor_type]
    blocks = np.asarray(tensor.data).reshape(-1, {8: 18, 16: 22}[zero])
    scale, nibbles = blocks[:, :2], blocks[:, -16:]
    codes = np.concatenate([nibbles & 15, nibbles >> 4], axis=1).astype(np.int8)
    if zero == 16:
        fifth = np.unpackbits(blocks[:, 2:6], axis=1, bitorder="little")
        codes += fifth.astype(np.int8) << 4
    return np.concatenate([scale, (codes - zero).astype(np.int8).view(np.uint8)], axis=1)


def widened(source: Path, target: Path) -> set[str]:
    """A copy whose Q4_0 and Q5_0 tensors are Q8_0 of the same numbers; the types there were."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            kinds = field.types
            inner = kinds[-1] if kinds[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), kinds[0], sub_type=inner)
    for tensor in reader.tensors:
        data, kind = tensor.data, tensor.tensor_type
        if kind in (Type.Q4_0, Type.Q5_0):
            data, kind = as_q8_0(tensor).reshape(data.shape[0], -1), Type.Q8_0
            expected = gguf.dequantize(tensor.data, tensor.tensor_type)
            np.testing.assert_array_equal(gguf.dequantize(data, kind), expected)
        writer.add_tensor(tensor.name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {t.tensor_type.name for t in reader.tensors}


@pytest.mark.parametrize("kind", ["P5", "P4"])
def test_it_speaks_bit_for_bit_what_its_numbers_say(made, context, voice, tmp_path, kind):
    files = made("tiny-base", kind)
    types = widened(files.talker, tmp_path / "wide.gguf")
    assert {"Q5_0", "Q8_0", "F32"} | ({"Q4_0"} if kind == "P4" else set()) <= types
    request = {"text": TEXT, "seed": 7, "max_new_tokens": 9, **voice}
    small = context("tiny-base", kind).buffered(**request)
    assert small.status == qtlib.OK
    with qtlib.Context(tmp_path / "wide.gguf", files.codec) as wide:
        expected = wide.buffered(**request)
    np.testing.assert_array_equal(small.samples, expected.samples)


@pytest.mark.parametrize("kind", ["P5", "P4"])
def test_fast_leaves_its_small_matrices_alone(context, kind):
    exact, fast = costs(context("tiny-base", kind)), costs(context("tiny-base", kind, precision=1))
    assert fast.predictor_bytes == exact.predictor_bytes


def test_p4_is_what_fast_makes(context):
    small = costs(context("tiny-base", "P4", precision=FAST))
    fast = costs(context("tiny-base", "Q8_0", precision=FAST))
    assert (small.talker_bytes, small.predictor_bytes) == (fast.talker_bytes, fast.predictor_bytes)


def test_each_step_is_smaller(context):
    kinds = ("Q8_0", "P5", "P4", "Q4_0")
    sizes = [costs(context("tiny-base", kind)) for kind in kinds]
    totals = [c.talker_bytes + c.predictor_bytes for c in sizes]
    assert totals == sorted(totals, reverse=True)
    assert len(set(totals)) == len(totals)
