"""Every tensor of a Qwen3-TTS checkpoint: official name, shape, GGUF name, what it is for.

The one list behind the converter (which refuses what is missing or has another shape) and the
factory (which fills the same tensors with random numbers). Shapes are torch's, slowest dimension
first; a GGUF file keeps the memory order and lists the dimensions the other way round.

    talker_tensors(config)   model.safetensors                 -> the talker GGUF
    codec_tensors(config)    speech_tokenizer/model.safetensors -> the codec GGUF

`config` is the parsed config.json beside the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

Config: TypeAlias = dict[str, Any]

USED_ACOUSTIC_CODEBOOKS = 15
"""Of the encoder's 31 acoustic codebooks: one frame has 16 codes, the first is semantic."""


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


def talker_tensors(config: Config) -> Iterator[TensorSpec]:
    """The language model: speaker encoder (base only), code predictor, talker."""
    talker = config["talker_config"]
    if "speaker_encoder_config" in config:
        yield from _speaker_encoder(config["speaker_encoder_config"])
    yield from _code_predictor(talker)
    hidden, text_hidden = talker["hidden_size"], talker["text_hidden_size"]
    yield _matrix("talker.codec_head.weight", talker["vocab_size"], hidden)
    yield _embedding(
        "talker.model.codec_embedding.weight",
        talker["vocab_size"],
        hidden,
        "talker.codec_embd.weight",
    )
    yield from _decoder_layers(talker, "talker.model.layers", "talker.blk")
    yield _norm("talker.model.norm.weight", hidden, "talker.output_norm.weight")
    yield _embedding(
        "talker.model.text_embedding.weight",
        talker["text_vocab_size"],
        text_hidden,
        "talker.text_embd.weight",
    )
    for part, width in (("fc1", text_hidden), ("fc2", hidden)):
        official, gguf = f"talker.text_projection.linear_{part}", f"talker.text_proj.{part}"
        yield _matrix(f"{official}.weight", width, text_hidden, f"{gguf}.weight")
        yield _bias(f"{official}.bias", width, f"{gguf}.bias")


def codec_tensors(config: Config) -> Iterator[TensorSpec]:
    """The 12 Hz speech tokenizer: decoder (codes -> audio) and Mimi encoder (audio -> codes)."""
    yield from codec_decoder_tensors(config["decoder_config"])
    yield from _codec_encoder(config["encoder_config"])


# ---------------------------------------------------------------- building blocks


def _matrix(name: str, rows: int, columns: int, gguf: str | None = None) -> TensorSpec:
    return TensorSpec(name, (rows, columns), gguf or name, fan_in=columns)


def _embedding(name: str, rows: int, columns: int, gguf: str) -> TensorSpec:
    return TensorSpec(name, (rows, columns), gguf, Role.EMBEDDING)


def _norm(name: str, width: int, gguf: str) -> TensorSpec:
    return TensorSpec(name, (width,), gguf, Role.NORM)


def _bias(name: str, width: int, gguf: str) -> TensorSpec:
    return TensorSpec(name, (width,), gguf, Role.BIAS)


def _conv(official: str, gguf: str, shape: tuple[int, int, int]) -> Iterator[TensorSpec]:
    """Conv1d, shape [out, in, k], with its bias."""
    out, inputs, kernel = shape
    yield TensorSpec(f"{official}.weight", shape, f"{gguf}.weight", fan_in=inputs * kernel)
    yield _bias(f"{official}.bias", out, f"{gguf}.bias")


def _transposed_conv(
    official: str, gguf: str, shape: tuple[int, int, int], stride: int
) -> Iterator[TensorSpec]:
    """ConvTranspose1d, shape [in, out, k], with its bias."""
    inputs, out, kernel = shape
    fan_in = inputs * kernel // stride
    yield TensorSpec(f"{official}.weight", shape, f"{gguf}.weight", fan_in=fan_in)
    yield _bias(f"{official}.bias", out, f"{gguf}.bias")


def _snake(official: str, gguf: str, width: int) -> Iterator[TensorSpec]:
    for part in ("alpha", "beta"):
        yield TensorSpec(f"{official}.{part}", (width,), f"{gguf}.{part}", Role.SNAKE)


def _attention(config: Config, layer: str, block: str) -> Iterator[TensorSpec]:
    hidden = config["hidden_size"]
    q_width = config["num_attention_heads"] * config["head_dim"]
    kv_width = config["num_key_value_heads"] * config["head_dim"]
    for short, width in (("q", q_width), ("k", kv_width), ("v", kv_width)):
        yield _matrix(
            f"{layer}.self_attn.{short}_proj.weight",
            width,
            hidden,
            f"{block}.attn_{short}.weight",
        )
    yield _matrix(
        f"{layer}.self_attn.o_proj.weight", hidden, q_width, f"{block}.attn_output.weight"
    )


def _gated_mlp(config: Config, layer: str, block: str) -> Iterator[TensorSpec]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    for short, rows, columns in (
        ("gate", inner, hidden),
        ("up", inner, hidden),
        ("down", hidden, inner),
    ):
        yield _matrix(
            f"{layer}.mlp.{short}_proj.weight", rows, columns, f"{block}.ffn_{short}.weight"
        )


def _layer_norms(config: Config, layer: str, block: str, *, bias: bool) -> Iterator[TensorSpec]:
    for official, short in (
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
    ):
        width = config["hidden_size"]
        yield _norm(f"{layer}.{official}.weight", width, f"{block}.{short}.weight")
        if bias:
            yield _bias(f"{layer}.{official}.bias", width, f"{block}.{short}.bias")


def _layer_scales(config: Config, layer: str, block: str) -> Iterator[TensorSpec]:
    for official, short in (
        ("self_attn_layer_scale", "attn_scale"),
        ("mlp_layer_scale", "ffn_scale"),
    ):
        yield TensorSpec(
            f"{layer}.{official}.scale", (config["hidden_size"],), f"{block}.{short}", Role.SCALE
        )


def _decoder_layers(config: Config, official: str, gguf: str) -> Iterator[TensorSpec]:
    """The Qwen3 block, shared by talker and code predictor: QK-norm, no biases."""
    for i in range(config["num_hidden_layers"]):
        layer, block = f"{official}.{i}", f"{gguf}.{i}"
        yield from _layer_norms(config, layer, block, bias=False)
        yield from _attention(config, layer, block)
        for short in ("q_norm", "k_norm"):
            yield _norm(
                f"{layer}.self_attn.{short}.weight",
                config["head_dim"],
                f"{block}.attn_{short}.weight",
            )
        yield from _gated_mlp(config, layer, block)


# ---------------------------------------------------------------- talker file


def _code_predictor(talker: Config) -> Iterator[TensorSpec]:
    config = talker["code_predictor_config"]
    hidden, width, vocab = talker["hidden_size"], config["hidden_size"], config["vocab_size"]
    prefix = "talker.code_predictor"
    for i in range(config["num_code_groups"] - 1):
        name = f"code_pred.lm_head.{i}.weight"
        yield _matrix(f"{prefix}.lm_head.{i}.weight", vocab, width, name)
    for i in range(config["num_code_groups"] - 1):
        yield _embedding(
            f"{prefix}.model.codec_embedding.{i}.weight",
            vocab,
            hidden,
            f"code_pred.codec_embd.{i}.weight",
        )
    yield from _decoder_layers(config, f"{prefix}.model.layers", "code_pred.blk")
    yield _norm(f"{prefix}.model.norm.weight", width, "code_pred.output_norm.weight")
    if has_projection(talker):
        projection = f"{prefix}.small_to_mtp_projection"
        yield _matrix(f"{projection}.weight", width, hidden, "code_pred.mtp_proj.weight")
        yield _bias(f"{projection}.bias", width, "code_pred.mtp_proj.bias")


def has_projection(talker: Config) -> bool:
    """1.7B: the predictor is narrower than the talker, and a linear layer stands between."""
    return bool(talker["hidden_size"] != talker["code_predictor_config"]["hidden_size"])


SPEAKER_ENCODER_DEFAULTS: Config = {
    "mel_dim": 128,
    "enc_channels": [512, 512, 512, 512, 1536],
    "enc_kernel_sizes": [5, 3, 3, 3, 1],
    "enc_attention_channels": 128,
    "enc_res2net_scale": 8,
    "enc_se_channels": 128,
}
"""What the released config.json leaves out of speaker_encoder_config."""


def _speaker_encoder(config: Config) -> Iterator[TensorSpec]:
    c = SPEAKER_ENCODER_DEFAULTS | config
    channels, kernels = c["enc_channels"], c["enc_kernel_sizes"]
    pre, gguf = "speaker_encoder", "spk_enc"
    yield from _conv(
        f"{pre}.blocks.0.conv", f"{gguf}.conv0", (channels[0], c["mel_dim"], kernels[0])
    )
    for i in range(1, len(channels) - 1):
        block, short, width = f"{pre}.blocks.{i}", f"{gguf}.blk.{i}", channels[i]
        yield from _conv(f"{block}.tdnn1.conv", f"{short}.tdnn1", (width, channels[i - 1], 1))
        part = width // c["enc_res2net_scale"]
        for j in range(c["enc_res2net_scale"] - 1):
            yield from _conv(
                f"{block}.res2net_block.blocks.{j}.conv",
                f"{short}.res2net.{j}",
                (part, part, kernels[i]),
            )
        yield from _conv(f"{block}.tdnn2.conv", f"{short}.tdnn2", (width, width, 1))
        squeeze = c["enc_se_channels"]
        yield from _conv(f"{block}.se_block.conv1", f"{short}.se.conv1", (squeeze, width, 1))
        yield from _conv(f"{block}.se_block.conv2", f"{short}.se.conv2", (width, squeeze, 1))
    last = channels[-1]
    yield from _conv(f"{pre}.mfa.conv", f"{gguf}.mfa", (last, sum(channels[1:-1]), kernels[-1]))
    attention = c["enc_attention_channels"]
    yield from _conv(f"{pre}.asp.tdnn.conv", f"{gguf}.asp.tdnn", (attention, 3 * last, 1))
    yield from _conv(f"{pre}.asp.conv", f"{gguf}.asp.conv", (last, attention, 1))
    yield from _conv(f"{pre}.fc", f"{gguf}.fc", (c["enc_dim"], 2 * last, 1))


# ---------------------------------------------------------------- codec file


def codec_decoder_tensors(c: Config) -> Iterator[TensorSpec]:
    """The decoder alone; `c` is the decoder_config."""
    yield from _decoder_quantizer(c)
    yield from _conv(
        "decoder.pre_conv.conv", "tok_dec.pre_conv", (c["latent_dim"], c["codebook_dim"], 3)
    )
    official, gguf = "decoder.pre_transformer", "tok_dec.pre_tfm"
    hidden, latent = c["hidden_size"], c["latent_dim"]
    for name, rows, columns in (("input_proj", hidden, latent), ("output_proj", latent, hidden)):
        yield _matrix(f"{official}.{name}.weight", rows, columns, f"{gguf}.{name}.weight")
        yield _bias(f"{official}.{name}.bias", rows, f"{gguf}.{name}.bias")
    for i in range(c["num_hidden_layers"]):
        layer, block = f"{official}.layers.{i}", f"{gguf}.blk.{i}"
        yield from _layer_norms(c, layer, block, bias=False)
        yield from _attention(c, layer, block)
        yield from _layer_scales(c, layer, block)
        yield from _gated_mlp(c, layer, block)
    yield _norm(f"{official}.norm.weight", hidden, f"{gguf}.norm.weight")
    for i, ratio in enumerate(c["upsampling_ratios"]):
        yield from _upsampler(latent, ratio, f"decoder.upsample.{i}", f"tok_dec.upsample.{i}")
    yield from _dac_decoder(c)


def _decoder_quantizer(c: Config) -> Iterator[TensorSpec]:
    inner, outer = c["codebook_dim"] // 2, c["codebook_dim"]
    semantic = c["num_semantic_quantizers"]
    for part, short, count in (
        ("rvq_first", "vq_first", semantic),
        ("rvq_rest", "vq_rest", c["num_quantizers"] - semantic),
    ):
        official = f"decoder.quantizer.{part}"
        yield TensorSpec(f"{official}.input_proj.weight", (inner, outer, 1), None, fan_in=outer)
        yield TensorSpec(
            f"{official}.output_proj.weight",
            (outer, inner, 1),
            f"tok_dec.{short}.output_proj.weight",
            fan_in=inner,
        )
        for i in range(count):
            book = f"{official}.vq.layers.{i}._codebook"
            usage = f"{book}.cluster_usage"
            yield TensorSpec(
                f"{book}.embedding_sum",
                (c["codebook_size"], inner),
                f"tok_dec.{short}.{i}.codebook",
                Role.CODEBOOK,
                usage,
            )
            yield TensorSpec(usage, (c["codebook_size"],), None, Role.USAGE)


def _upsampler(width: int, ratio: int, official: str, gguf: str) -> Iterator[TensorSpec]:
    """Transposed conv, then a ConvNeXt block (depthwise k7, two pointwise layers)."""
    yield from _transposed_conv(
        f"{official}.0.conv", f"{gguf}.conv", (width, width, ratio), stride=ratio
    )
    yield from _conv(f"{official}.1.dwconv.conv", f"{gguf}.dwconv", (width, 1, 7))
    yield _norm(f"{official}.1.norm.weight", width, f"{gguf}.norm.weight")
    yield _bias(f"{official}.1.norm.bias", width, f"{gguf}.norm.bias")
    for name, rows, columns in (("pwconv1", 4 * width, width), ("pwconv2", width, 4 * width)):
        yield _matrix(f"{official}.1.{name}.weight", rows, columns, f"{gguf}.{name}.weight")
        yield _bias(f"{official}.1.{name}.bias", rows, f"{gguf}.{name}.bias")
    yield TensorSpec(f"{official}.1.gamma", (width,), f"{gguf}.gamma", Role.SCALE)


def _dac_decoder(c: Config) -> Iterator[TensorSpec]:
    rates = c["upsample_rates"]
    width = c["decoder_dim"]
    yield from _conv("decoder.decoder.0.conv", "tok_dec.dec.0.conv", (width, c["latent_dim"], 7))
    for i, rate in enumerate(rates, start=1):
        block, short = f"decoder.decoder.{i}.block", f"tok_dec.dec.{i}"
        yield from _snake(f"{block}.0", f"{short}.snake", width)
        yield from _transposed_conv(
            f"{block}.1.conv", f"{short}.conv_t", (width, width // 2, 2 * rate), stride=rate
        )
        width //= 2
        for unit in range(3):
            official, gguf = f"{block}.{unit + 2}", f"{short}.res.{unit}"
            yield from _snake(f"{official}.act1", f"{gguf}.act1", width)
            yield from _conv(f"{official}.conv1.conv", f"{gguf}.conv1", (width, width, 7))
            yield from _snake(f"{official}.act2", f"{gguf}.act2", width)
            yield from _conv(f"{official}.conv2.conv", f"{gguf}.conv2", (width, width, 1))
    n = len(rates) + 1
    yield from _snake(f"decoder.decoder.{n}", f"tok_dec.dec.{n}.snake", width)
    yield from _conv(f"decoder.decoder.{n + 1}.conv", f"tok_dec.dec.{n + 1}.conv", (1, width, 7))


def _codec_encoder(c: Config) -> Iterator[TensorSpec]:
    yield from _encoder_convs(c)
    for i in range(c["num_hidden_layers"]):
        layer, block = f"encoder.encoder_transformer.layers.{i}", f"tok_enc.blk.{i}"
        hidden, inner = c["hidden_size"], c["intermediate_size"]
        yield from _layer_norms(c, layer, block, bias=True)
        yield from _attention(c, layer, block)
        yield _matrix(f"{layer}.mlp.fc1.weight", inner, hidden, f"{block}.ffn_up.weight")
        yield _matrix(f"{layer}.mlp.fc2.weight", hidden, inner, f"{block}.ffn_down.weight")
        yield from _layer_scales(c, layer, block)
    width = c["hidden_size"]
    yield TensorSpec(
        "encoder.downsample.conv.weight",
        (width, width, 4),
        "tok_enc.downsample.weight",
        fan_in=4 * width,
    )
    yield from _encoder_quantizer(c)


def _encoder_convs(c: Config) -> Iterator[TensorSpec]:
    """SEANet encoder: the layer index counts activations too, so that blocks come every third."""
    official, gguf, kernel = "encoder.encoder.layers", "tok_enc", c["kernel_size"]
    width = c["num_filters"]
    yield from _conv(f"{official}.0.conv", f"{gguf}.conv.0", (width, c["audio_channels"], kernel))
    index = 1
    for ratio in reversed(c["upsampling_ratios"]):
        inner = width // c["compress"]
        for unit, shape in (
            (1, (inner, width, c["residual_kernel_size"])),
            (3, (width, inner, 1)),
        ):
            yield from _conv(
                f"{official}.{index}.block.{unit}.conv", f"{gguf}.res.{index}.blk.{unit}", shape
            )
        index += 2
        shape = (2 * width, width, 2 * ratio)
        yield from _conv(f"{official}.{index}.conv", f"{gguf}.conv.{index}", shape)
        width *= 2
        index += 1
    index += 1
    yield from _conv(
        f"{official}.{index}.conv",
        f"{gguf}.conv.{index}",
        (c["hidden_size"], width, c["last_kernel_size"]),
    )


def _encoder_quantizer(c: Config) -> Iterator[TensorSpec]:
    inner, outer = c["codebook_dim"], c["hidden_size"]
    semantic = c["num_semantic_quantizers"]
    for part, count, used in (
        ("semantic", semantic, semantic),
        ("acoustic", c["num_quantizers"] - semantic, USED_ACOUSTIC_CODEBOOKS),
    ):
        official, gguf = f"encoder.quantizer.{part}_residual_vector_quantizer", f"tok_enc.vq_{part}"
        for name, rows, columns in (("input_proj", inner, outer), ("output_proj", outer, inner)):
            yield TensorSpec(
                f"{official}.{name}.weight",
                (rows, columns, 1),
                f"{gguf}.{name}.weight",
                fan_in=columns,
            )
        for i in range(count):
            book = f"{official}.layers.{i}.codebook"
            usage, size = f"{book}.cluster_usage", c["codebook_size"]
            kept = f"{gguf}.{i}.codebook" if i < used else None
            yield TensorSpec(f"{book}.embed_sum", (size, inner), kept, Role.CODEBOOK, usage)
            yield TensorSpec(usage, (size,), None, Role.USAGE)
            yield TensorSpec(f"{book}.initialized", (1,), None, Role.FLAG)
