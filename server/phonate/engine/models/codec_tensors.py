"""The tensors of the 12 Hz codec: decoder (codes -> audio) and Mimi encoder (audio -> codes)."""

from __future__ import annotations

from collections.abc import Iterator

from phonate.engine.models.tensor_spec import (
    Config,
    Role,
    TensorSpec,
    attention,
    bias,
    conv,
    gated_mlp,
    layer_norms,
    layer_scales,
    matrix,
    norm,
    snake,
    transposed_conv,
)

USED_ACOUSTIC_CODEBOOKS = 15
"""Of the encoder's 31 acoustic codebooks: one frame has 16 codes, the first is semantic."""


def codec_tensors(config: Config) -> Iterator[TensorSpec]:
    """The 12 Hz speech tokenizer: decoder (codes -> audio) and Mimi encoder (audio -> codes)."""
    yield from codec_decoder_tensors(config["decoder_config"])
    yield from _codec_encoder(config["encoder_config"])


def codec_decoder_tensors(c: Config) -> Iterator[TensorSpec]:
    yield from _decoder_quantizer(c)
    yield from conv(
        "decoder.pre_conv.conv", "tok_dec.pre_conv", (c["latent_dim"], c["codebook_dim"], 3)
    )
    official, gguf = "decoder.pre_transformer", "tok_dec.pre_tfm"
    hidden, latent = c["hidden_size"], c["latent_dim"]
    for name, rows, columns in (("input_proj", hidden, latent), ("output_proj", latent, hidden)):
        yield matrix(f"{official}.{name}.weight", rows, columns, f"{gguf}.{name}.weight")
        yield bias(f"{official}.{name}.bias", rows, f"{gguf}.{name}.bias")
    for i in range(c["num_hidden_layers"]):
        layer, block = f"{official}.layers.{i}", f"{gguf}.blk.{i}"
        yield from layer_norms(c, layer, block, biased=False)
        yield from attention(c, layer, block)
        yield from layer_scales(c, layer, block)
        yield from gated_mlp(c, layer, block)
    yield norm(f"{official}.norm.weight", hidden, f"{gguf}.norm.weight")
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
    yield from transposed_conv(
        f"{official}.0.conv", f"{gguf}.conv", (width, width, ratio), stride=ratio
    )
    yield from conv(f"{official}.1.dwconv.conv", f"{gguf}.dwconv", (width, 1, 7))
    yield norm(f"{official}.1.norm.weight", width, f"{gguf}.norm.weight")
    yield bias(f"{official}.1.norm.bias", width, f"{gguf}.norm.bias")
    for name, rows, columns in (("pwconv1", 4 * width, width), ("pwconv2", width, 4 * width)):
        yield matrix(f"{official}.1.{name}.weight", rows, columns, f"{gguf}.{name}.weight")
        yield bias(f"{official}.1.{name}.bias", rows, f"{gguf}.{name}.bias")
    yield TensorSpec(f"{official}.1.gamma", (width,), f"{gguf}.gamma", Role.SCALE)


def _dac_decoder(c: Config) -> Iterator[TensorSpec]:
    rates = c["upsample_rates"]
    width = c["decoder_dim"]
    yield from conv("decoder.decoder.0.conv", "tok_dec.dec.0.conv", (width, c["latent_dim"], 7))
    for i, rate in enumerate(rates, start=1):
        block, short = f"decoder.decoder.{i}.block", f"tok_dec.dec.{i}"
        yield from snake(f"{block}.0", f"{short}.snake", width)
        yield from transposed_conv(
            f"{block}.1.conv", f"{short}.conv_t", (width, width // 2, 2 * rate), stride=rate
        )
        width //= 2
        for unit in range(3):
            official, gguf = f"{block}.{unit + 2}", f"{short}.res.{unit}"
            yield from snake(f"{official}.act1", f"{gguf}.act1", width)
            yield from conv(f"{official}.conv1.conv", f"{gguf}.conv1", (width, width, 7))
            yield from snake(f"{official}.act2", f"{gguf}.act2", width)
            yield from conv(f"{official}.conv2.conv", f"{gguf}.conv2", (width, width, 1))
    n = len(rates) + 1
    yield from snake(f"decoder.decoder.{n}", f"tok_dec.dec.{n}.snake", width)
    yield from conv(f"decoder.decoder.{n + 1}.conv", f"tok_dec.dec.{n + 1}.conv", (1, width, 7))


def _codec_encoder(c: Config) -> Iterator[TensorSpec]:
    yield from _encoder_convs(c)
    for i in range(c["num_hidden_layers"]):
        layer, block = f"encoder.encoder_transformer.layers.{i}", f"tok_enc.blk.{i}"
        hidden, inner = c["hidden_size"], c["intermediate_size"]
        yield from layer_norms(c, layer, block, biased=True)
        yield from attention(c, layer, block)
        yield matrix(f"{layer}.mlp.fc1.weight", inner, hidden, f"{block}.ffn_up.weight")
        yield matrix(f"{layer}.mlp.fc2.weight", hidden, inner, f"{block}.ffn_down.weight")
        yield from layer_scales(c, layer, block)
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
    yield from conv(f"{official}.0.conv", f"{gguf}.conv.0", (width, c["audio_channels"], kernel))
    index = 1
    for ratio in reversed(c["upsampling_ratios"]):
        inner = width // c["compress"]
        for unit, shape in (
            (1, (inner, width, c["residual_kernel_size"])),
            (3, (width, inner, 1)),
        ):
            yield from conv(
                f"{official}.{index}.block.{unit}.conv", f"{gguf}.res.{index}.blk.{unit}", shape
            )
        index += 2
        shape = (2 * width, width, 2 * ratio)
        yield from conv(f"{official}.{index}.conv", f"{gguf}.conv.{index}", shape)
        width *= 2
        index += 1
    index += 1
    yield from conv(
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
