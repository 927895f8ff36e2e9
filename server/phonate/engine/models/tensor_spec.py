"""What is known of one tensor, and the groups of tensors that all parts of the model are made of.

Shapes are torch's, slowest dimension first; a GGUF file keeps the memory order and lists the
dimensions the other way round. Each builder takes the official name and the GGUF name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

Config: TypeAlias = dict[str, Any]


class Role(Enum):
    """What a tensor does; decides how random numbers are scaled and what may be quantised."""

    LINEAR = "linear"
    EMBEDDING = "embedding"
    NORM = "norm"
    BIAS = "bias"
    SCALE = "scale"
    SNAKE = "snake"
    CODEBOOK = "codebook"
    USAGE = "usage"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """`gguf` is None for what stays behind. A codebook is stored divided by `usage`, its row
    counts: embedding_sum / max(cluster_usage, 1e-5)."""

    name: str
    shape: tuple[int, ...]
    gguf: str | None
    role: Role = Role.LINEAR
    usage: str | None = None
    fan_in: int = 0
    """Products per output element of a matrix; 0 where that means nothing."""


def matrix(name: str, rows: int, columns: int, gguf: str | None = None) -> TensorSpec:
    return TensorSpec(name, (rows, columns), gguf or name, fan_in=columns)


def embedding(name: str, rows: int, columns: int, gguf: str) -> TensorSpec:
    return TensorSpec(name, (rows, columns), gguf, Role.EMBEDDING)


def norm(name: str, width: int, gguf: str) -> TensorSpec:
    return TensorSpec(name, (width,), gguf, Role.NORM)


def bias(name: str, width: int, gguf: str) -> TensorSpec:
    return TensorSpec(name, (width,), gguf, Role.BIAS)


def conv(official: str, gguf: str, shape: tuple[int, int, int]) -> Iterator[TensorSpec]:
    """Conv1d, shape [out, in, k], with its bias."""
    out, inputs, kernel = shape
    yield TensorSpec(f"{official}.weight", shape, f"{gguf}.weight", fan_in=inputs * kernel)
    yield bias(f"{official}.bias", out, f"{gguf}.bias")


def transposed_conv(
    official: str, gguf: str, shape: tuple[int, int, int], stride: int
) -> Iterator[TensorSpec]:
    """ConvTranspose1d, shape [in, out, k], with its bias."""
    inputs, out, kernel = shape
    fan_in = inputs * kernel // stride
    yield TensorSpec(f"{official}.weight", shape, f"{gguf}.weight", fan_in=fan_in)
    yield bias(f"{official}.bias", out, f"{gguf}.bias")


def snake(official: str, gguf: str, width: int) -> Iterator[TensorSpec]:
    for part in ("alpha", "beta"):
        yield TensorSpec(f"{official}.{part}", (width,), f"{gguf}.{part}", Role.SNAKE)


def attention(config: Config, layer: str, block: str) -> Iterator[TensorSpec]:
    hidden = config["hidden_size"]
    q_width = config["num_attention_heads"] * config["head_dim"]
    kv_width = config["num_key_value_heads"] * config["head_dim"]
    for short, width in (("q", q_width), ("k", kv_width), ("v", kv_width)):
        yield matrix(
            f"{layer}.self_attn.{short}_proj.weight",
            width,
            hidden,
            f"{block}.attn_{short}.weight",
        )
    yield matrix(f"{layer}.self_attn.o_proj.weight", hidden, q_width, f"{block}.attn_output.weight")


def gated_mlp(config: Config, layer: str, block: str) -> Iterator[TensorSpec]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    for short, rows, columns in (
        ("gate", inner, hidden),
        ("up", inner, hidden),
        ("down", hidden, inner),
    ):
        yield matrix(
            f"{layer}.mlp.{short}_proj.weight", rows, columns, f"{block}.ffn_{short}.weight"
        )


def layer_norms(config: Config, layer: str, block: str, *, biased: bool) -> Iterator[TensorSpec]:
    for official, short in (
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
    ):
        width = config["hidden_size"]
        yield norm(f"{layer}.{official}.weight", width, f"{block}.{short}.weight")
        if biased:
            yield bias(f"{layer}.{official}.bias", width, f"{block}.{short}.bias")


def layer_scales(config: Config, layer: str, block: str) -> Iterator[TensorSpec]:
    for official, short in (
        ("self_attn_layer_scale", "attn_scale"),
        ("mlp_layer_scale", "ffn_scale"),
    ):
        yield TensorSpec(
            f"{layer}.{official}.scale", (config["hidden_size"],), f"{block}.{short}", Role.SCALE
        )


def decoder_layers(config: Config, official: str, gguf: str) -> Iterator[TensorSpec]:
    """The Qwen3 block, shared by talker and code predictor: QK-norm, no biases."""
    for i in range(config["num_hidden_layers"]):
        layer, block = f"{official}.{i}", f"{gguf}.{i}"
        yield from layer_norms(config, layer, block, biased=False)
        yield from attention(config, layer, block)
        for short in ("q_norm", "k_norm"):
            yield norm(
                f"{layer}.self_attn.{short}.weight",
                config["head_dim"],
                f"{block}.attn_{short}.weight",
            )
        yield from gated_mlp(config, layer, block)
