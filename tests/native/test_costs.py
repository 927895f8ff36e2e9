"""qt_measure_machine and qt_frame_costs: what bounds the speed."""

from __future__ import annotations

import gguf
import pytest
import qtlib

PER_LAYER = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def costs(ctx: qtlib.Context):
    found = qtlib.ffi().new("qt_frame_cost *")
    assert qtlib.load().qt_frame_costs(ctx.handle, found) == qtlib.OK
    return found


def layer_values(path, prefix: str) -> int:
    names = [f".{name}.weight" for name in PER_LAYER]
    return sum(
        int(t.n_elements)
        for t in gguf.GGUFReader(path).tensors
        if t.name.startswith(f"{prefix}.blk.") and any(t.name.endswith(n) for n in names)
    )


def test_bytes_are_those_of_the_file(context, made):
    files = made("tiny-base", "F32")
    found = costs(context("tiny-base", "F32"))
    tensors = {t.name: t for t in gguf.GGUFReader(files.talker).tensors}
    head = tensors["code_pred.lm_head.0.weight"]
    codes, hidden = (int(n) for n in (head.shape[1], head.shape[0]))
    predictor = 15 * layer_values(files.talker, "code_pred") + 15 * codes * hidden
    assert found.predictor_bytes == 4 * predictor
    layers = 4 * layer_values(files.talker, "talker")
    width = int(tensors["talker.codec_head.weight"].shape[0])
    # The head: the codes and the end, in panels of 16.
    assert found.talker_bytes == layers + 4 * (codes + 16) * width


def test_fewer_bits_cost_less_and_the_codec_as_much_work(context):
    exact = costs(context("tiny-base", "Q8_0"))
    fast = costs(context("tiny-base", "Q8_0", precision=1))
    assert 0.5 < fast.predictor_bytes / exact.predictor_bytes < 0.55  # 4.5 of 8.5 bits
    assert fast.predictor_bytes / exact.predictor_bytes < fast.talker_bytes / exact.talker_bytes < 1
    assert fast.codec_mul_adds == exact.codec_mul_adds > 0
    assert 0 < fast.codec_bytes <= exact.codec_bytes


def test_a_machine_has_limits():
    found = qtlib.ffi().new("qt_machine *")
    assert qtlib.load().qt_measure_machine(2, found) == qtlib.OK
    assert found.n_threads == 2
    assert 1e8 < found.read_bytes_s < 1e13
    assert 1e8 < found.mul_adds_s < 1e14


@pytest.mark.parametrize("threads", [-1, 257])
def test_wrong_arguments(threads):
    null = qtlib.ffi().NULL
    found = qtlib.ffi().new("qt_machine *")
    assert qtlib.load().qt_measure_machine(threads, found) == qtlib.INVALID
    assert f"n_threads is {threads}" in qtlib.last_error()
    assert qtlib.load().qt_measure_machine(1, null) == qtlib.INVALID
    assert qtlib.load().qt_frame_costs(null, qtlib.ffi().new("qt_frame_cost *")) == qtlib.INVALID
