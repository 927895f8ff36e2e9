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

from phonate.engine.models.codec_tensors import codec_tensors
from phonate.engine.models.tensor_spec import (
    Config,
    Role,
    TensorSpec,
    bias,
    conv,
    decoder_layers,
    embedding,
    matrix,
    norm,
)

__all__ = ["Config", "Role", "TensorSpec", "codec_tensors", "has_projection", "talker_tensors"]


def talker_tensors(config: Config) -> Iterator[TensorSpec]:
    """The language model: speaker encoder (base only), code predictor, talker."""
    talker = config["talker_config"]
    if "speaker_encoder_config" in config:
        yield from _speaker_encoder(config["speaker_encoder_config"])
    yield from _code_predictor(talker)
    hidden, text_hidden = talker["hidden_size"], talker["text_hidden_size"]
    yield matrix("talker.codec_head.weight", talker["vocab_size"], hidden)
    yield embedding(
        "talker.model.codec_embedding.weight",
        talker["vocab_size"],
        hidden,
        "talker.codec_embd.weight",
    )
    yield from decoder_layers(talker, "talker.model.layers", "talker.blk")
    yield norm("talker.model.norm.weight", hidden, "talker.output_norm.weight")
    yield embedding(
        "talker.model.text_embedding.weight",
        talker["text_vocab_size"],
        text_hidden,
        "talker.text_embd.weight",
    )
    for part, width in (("fc1", text_hidden), ("fc2", hidden)):
        official, gguf = f"talker.text_projection.linear_{part}", f"talker.text_proj.{part}"
        yield matrix(f"{official}.weight", width, text_hidden, f"{gguf}.weight")
        yield bias(f"{official}.bias", width, f"{gguf}.bias")


def _code_predictor(talker: Config) -> Iterator[TensorSpec]:
    config = talker["code_predictor_config"]
    hidden, width, vocab = talker["hidden_size"], config["hidden_size"], config["vocab_size"]
    prefix = "talker.code_predictor"
    for i in range(config["num_code_groups"] - 1):
        name = f"code_pred.lm_head.{i}.weight"
        yield matrix(f"{prefix}.lm_head.{i}.weight", vocab, width, name)
    for i in range(config["num_code_groups"] - 1):
        yield embedding(
            f"{prefix}.model.codec_embedding.{i}.weight",
            vocab,
            hidden,
            f"code_pred.codec_embd.{i}.weight",
        )
    yield from decoder_layers(config, f"{prefix}.model.layers", "code_pred.blk")
    yield norm(f"{prefix}.model.norm.weight", width, "code_pred.output_norm.weight")
    if has_projection(talker):
        projection = f"{prefix}.small_to_mtp_projection"
        yield matrix(f"{projection}.weight", width, hidden, "code_pred.mtp_proj.weight")
        yield bias(f"{projection}.bias", width, "code_pred.mtp_proj.bias")


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
    yield from conv(
        f"{pre}.blocks.0.conv", f"{gguf}.conv0", (channels[0], c["mel_dim"], kernels[0])
    )
    for i in range(1, len(channels) - 1):
        block, short, width = f"{pre}.blocks.{i}", f"{gguf}.blk.{i}", channels[i]
        yield from conv(f"{block}.tdnn1.conv", f"{short}.tdnn1", (width, channels[i - 1], 1))
        part = width // c["enc_res2net_scale"]
        for j in range(c["enc_res2net_scale"] - 1):
            yield from conv(
                f"{block}.res2net_block.blocks.{j}.conv",
                f"{short}.res2net.{j}",
                (part, part, kernels[i]),
            )
        yield from conv(f"{block}.tdnn2.conv", f"{short}.tdnn2", (width, width, 1))
        squeeze = c["enc_se_channels"]
        yield from conv(f"{block}.se_block.conv1", f"{short}.se.conv1", (squeeze, width, 1))
        yield from conv(f"{block}.se_block.conv2", f"{short}.se.conv2", (width, squeeze, 1))
    last = channels[-1]
    yield from conv(f"{pre}.mfa.conv", f"{gguf}.mfa", (last, sum(channels[1:-1]), kernels[-1]))
    attention = c["enc_attention_channels"]
    yield from conv(f"{pre}.asp.tdnn.conv", f"{gguf}.asp.tdnn", (attention, 3 * last, 1))
    yield from conv(f"{pre}.asp.conv", f"{gguf}.asp.conv", (last, attention, 1))
    yield from conv(f"{pre}.fc", f"{gguf}.fc", (c["enc_dim"], 2 * last, 1))
