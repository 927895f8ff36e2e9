"""Checkpoint -> GGUF, read back with the gguf package. (Values: tests/golden.)"""

from __future__ import annotations

import json
import math
import os
import shutil
import tracemalloc

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from phonate.engine.models import convert
from phonate.engine.models.convert import convert_checkpoint
from phonate.engine.models.factory import Recipe, make_checkpoint
from phonate.engine.models.factory_weights import UNUSED_CODE
from phonate.engine.models.gguf_types import FILE_TYPES
from phonate.errors import SetupError

KINDS = ("base", "customvoice", "voicedesign")


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Kind -> folder. Read only: tests that break one copy it."""
    root = tmp_path_factory.mktemp("checkpoints")
    for kind in KINDS:
        # float32, so that the package can read the weights into numpy.
        make_checkpoint(Recipe(kind=kind, dtype="F32"), root / kind)
    return {kind: root / kind for kind in KINDS}


@pytest.fixture
def broken(checkpoints, tmp_path):
    """A copy of the base checkpoint to spoil. The weights are links: unlink before writing."""

    def copy(source, target):
        os.link(source, target) if source.endswith(".safetensors") else shutil.copy(source, target)

    return shutil.copytree(checkpoints["base"], tmp_path / "broken", copy_function=copy)


def read(path):
    reader = gguf.GGUFReader(path)
    meta = {key: field.contents() for key, field in reader.fields.items()}
    return meta, {t.name: t for t in reader.tensors}


def edit(path, change):
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def refuses(folder, out, message):
    with pytest.raises(SetupError, match=message):
        convert_checkpoint(folder, out, "F32")
    assert not out.exists() or not list(out.iterdir())


# ---------------------------------------------------------------- what is in the files


def test_every_weight_arrives_under_its_name_in_torchs_order(checkpoints, tmp_path):
    files = convert_checkpoint(checkpoints["base"], tmp_path, "F32")
    weights = load_file(checkpoints["base"] / "model.safetensors")
    tensors = read(files.talker)[1]
    assert len(tensors) == len(weights)
    for official, name in (
        ("talker.model.layers.2.mlp.down_proj.weight", "talker.blk.2.ffn_down.weight"),
        ("talker.code_predictor.lm_head.14.weight", "code_pred.lm_head.14.weight"),
        (
            "speaker_encoder.blocks.3.res2net_block.blocks.6.conv.weight",
            "spk_enc.blk.3.res2net.6.weight",
        ),
    ):
        tensor = tensors[name]
        assert list(tensor.shape) == list(weights[official].shape)[::-1]
        assert (tensor.data.ravel() == weights[official].ravel()).all()


def test_codebooks_are_divided_by_their_counts(checkpoints, tmp_path):
    files = convert_checkpoint(checkpoints["base"], tmp_path, "F16")
    weights = load_file(checkpoints["base"] / "speech_tokenizer" / "model.safetensors")
    tensors = read(files.codec)[1]
    for official, sums, name in (
        ("decoder.quantizer.rvq_rest.vq.layers.3._codebook", "embedding_sum", "tok_dec.vq_rest.3"),
        (
            "encoder.quantizer.acoustic_residual_vector_quantizer.layers.14.codebook",
            "embed_sum",
            "tok_enc.vq_acoustic.14",
        ),
    ):
        counts = weights[f"{official}.cluster_usage"]
        assert counts[UNUSED_CODE] == 0
        expected = weights[f"{official}.{sums}"] / np.maximum(counts, np.float32(1e-5))[:, None]
        assert (tensors[f"{name}.codebook"].data == expected).all()
    assert not any("vq_acoustic.15" in name or "cluster_usage" in name for name in tensors)


def test_metadata_of_a_base_model(checkpoints, tmp_path):
    files = convert_checkpoint(checkpoints["base"], tmp_path, "F32", name="My voice")
    meta, tensors = read(files.talker)
    config = json.loads((checkpoints["base"] / "config.json").read_text())
    assert meta["general.architecture"] == "qwen3-tts"
    assert meta["general.name"] == "My voice"
    assert meta["qwen3-tts.model_type"] == "base"
    assert meta["qwen3-tts.spk_enc.embedding_length"] == 128
    assert meta["qwen3-tts.code_pred.block_count"] == 2
    assert meta["qwen3-tts.text.tts_eos_id"] == config["tts_eos_token_id"]
    assert meta["qwen3-tts.talker.rope.mrope_section"] == [8, 4, 4]
    assert meta["generation.temperature"] == pytest.approx(0.9)
    assert len(tensors["talker.text_embd.weight"].data) == 512
    assert "qwen3-tts.codec.speaker_names" not in meta
    codec, _ = read(files.codec)
    assert codec["general.architecture"] == "qwen3-tts-tokenizer"
    assert codec["qwen3-tts-tokenizer.decoder.upsample_rates"] == [8, 5, 4, 3]
    assert codec["qwen3-tts-tokenizer.decoder.codebook_dim_internal"] == 16
    assert codec["qwen3-tts-tokenizer.encoder.vector_quantization_hidden_dim"] == 16


def test_arrays_of_numbers_are_32_bits_wide_as_existing_loaders_want(checkpoints, tmp_path):
    files = convert_checkpoint(checkpoints["customvoice"], tmp_path, "F32")
    for path in (files.talker, files.codec):
        for field in gguf.GGUFReader(path).fields.values():
            if field.types[0] == gguf.GGUFValueType.ARRAY:
                assert field.types[1] in {gguf.GGUFValueType.INT32, gguf.GGUFValueType.STRING}


def test_speakers_and_dialects_of_custom_voice(checkpoints, tmp_path):
    meta, tensors = read(convert_checkpoint(checkpoints["customvoice"], tmp_path, "F32").talker)
    names = meta["qwen3-tts.codec.speaker_names"]
    dialects = dict(zip(names, meta["qwen3-tts.codec.speaker_dialects"], strict=True))
    ids = dict(zip(names, meta["qwen3-tts.codec.speaker_ids"], strict=True))
    assert (ids["vivian"], dialects["vivian"]) == (3065, "")
    assert dialects["dylan"] == "beijing_dialect"
    assert "sichuan_dialect" in meta["qwen3-tts.codec.language_names"]
    assert not any(name.startswith("spk_enc") for name in tensors)
    assert "qwen3-tts.spk_enc.sample_rate" not in meta


def test_the_tokenizer_is_whole_with_merges_that_begin_with_a_number_sign(checkpoints, tmp_path):
    meta, _ = read(convert_checkpoint(checkpoints["voicedesign"], tmp_path, "F32").talker)
    vocab = json.loads((checkpoints["voicedesign"] / "vocab.json").read_text())
    merges = (checkpoints["voicedesign"] / "merges.txt").read_text().splitlines()[1:]
    assert meta["tokenizer.ggml.merges"] == merges
    assert {"# #", "# !"} <= set(merges)
    tokens = meta["tokenizer.ggml.tokens"]
    assert tokens[: len(vocab)] == sorted(vocab, key=vocab.__getitem__)
    assert tokens[meta["qwen3-tts.text.im_start_id"]] == "<|im_start|>"
    types = dict(zip(tokens, meta["tokenizer.ggml.token_type"], strict=True))
    assert (types["assistant"], types["<|im_end|>"], types["<think>"]) == (1, 3, 4)
    assert tokens[meta["tokenizer.ggml.eos_token_id"]] == "<|endoftext|>"


@pytest.mark.parametrize("kind", FILE_TYPES)
def test_every_type_can_be_read_back(checkpoints, tmp_path, kind):
    files = convert_checkpoint(checkpoints["base"], tmp_path, kind, codec_kind="F32")
    assert files.talker.name == f"talker-{kind}.gguf"
    assert files.codec.name == "codec-F32.gguf"
    weights = load_file(checkpoints["base"] / "model.safetensors")
    tensor = read(files.talker)[1]["talker.blk.0.ffn_down.weight"]
    found = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    expected = weights["talker.model.layers.0.mlp.down_proj.weight"]
    assert tensor.tensor_type.name == FILE_TYPES[kind].matrix
    assert np.abs(found - expected).max() < 0.15 * np.abs(expected).max()


def test_pieces_of_any_size_give_the_same_file_in_little_memory(checkpoints, tmp_path, monkeypatch):
    whole = convert_checkpoint(checkpoints["base"], tmp_path / "whole", "Q8_0")
    monkeypatch.setattr(convert, "PIECE_ELEMENTS", 5000)
    tracemalloc.start()
    try:
        pieces = convert_checkpoint(checkpoints["base"], tmp_path / "pieces", "Q8_0")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert pieces.talker.read_bytes() == whole.talker.read_bytes()
    assert pieces.codec.read_bytes() == whole.codec.read_bytes()
    assert peak < 4 << 20  # the largest tensor alone is 1.5 MiB, the file 38


def test_shards_give_the_same_file(checkpoints, broken, tmp_path):
    weights = load_file(broken / "model.safetensors")
    names = sorted(weights)
    shards = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for shard, part in shards.items():
        save_file({name: weights[name] for name in part}, broken / shard)
    (broken / "model.safetensors").unlink()
    index = {"weight_map": {name: shard for shard, part in shards.items() for name in part}}
    (broken / "model.safetensors.index.json").write_text(json.dumps(index))
    one = convert_checkpoint(checkpoints["base"], tmp_path / "one", "F16")
    many = convert_checkpoint(broken, tmp_path / "many", "F16")
    assert one.talker.read_bytes() == many.talker.read_bytes()


def test_progress_ends_at_the_size_of_the_tensors(checkpoints, tmp_path):
    heard = []
    files = convert_checkpoint(
        checkpoints["base"], tmp_path, "F32", progress=lambda *event: heard.append(event)
    )
    for path in (files.talker, files.codec):
        events = [(done, total) for what, done, total in heard if what == path.name]
        assert events == sorted(events)
        size = sum(t.n_bytes for t in gguf.GGUFReader(path).tensors)
        assert events[-1] == (size, size)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("file", "key", "value", "message"),
    [
        ("config.json", "model_type", "qwen2", r"config.json: model_type is 'qwen2'"),
        ("config.json", "tts_model_type", "singing", r"knows 'base', 'custom_voice'"),
        ("config.json", "tokenizer_type", "qwen3_tts_tokenizer_25hz", r"tokenizer_type is .*25hz"),
        (
            "speech_tokenizer/config.json",
            "model_type",
            None,
            r"speech_tokenizer/config.json: model",
        ),
    ],
)
def test_another_architecture(broken, tmp_path, file, key, value, message):
    edit(broken / file, lambda config: config.update({key: value}))
    refuses(broken, tmp_path / "out", message)


def test_a_key_that_is_missing(broken, tmp_path):
    edit(broken / "config.json", lambda config: config["talker_config"].pop("codec_bos_id"))
    refuses(broken, tmp_path / "out", "config.json lacks 'codec_bos_id'")


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "vocab.json",
        "merges.txt",
        "tokenizer_config.json",
        "model.safetensors",
        "speech_tokenizer/config.json",
        "speech_tokenizer/model.safetensors",
    ],
)
def test_a_file_that_is_missing(broken, tmp_path, name):
    (broken / name).unlink()
    refuses(broken, tmp_path / "out", rf"Cannot read .*{name}: No such file")


@pytest.mark.parametrize("text", ["{", "[]", "\x00"])
def test_a_configuration_that_is_no_json_object(broken, tmp_path, text):
    (broken / "config.json").write_text(text)
    refuses(broken, tmp_path / "out", "config.json (is not JSON|holds no JSON object)")


def test_a_folder_that_is_no_checkpoint(tmp_path):
    refuses(tmp_path / "nothing", tmp_path / "out", "is not a directory")
    (tmp_path / "empty").mkdir()
    refuses(tmp_path / "empty", tmp_path / "out", r"Cannot read .*config.json")


def weights_with(change):
    def spoil(folder):
        weights = load_file(folder / "model.safetensors")
        change(weights)
        (folder / "model.safetensors").unlink()
        save_file(weights, folder / "model.safetensors")

    return spoil


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            weights_with(lambda w: w.pop("talker.codec_head.weight")),
            "lacks the tensor talker.codec_head.weight",
        ),
        (
            weights_with(lambda w: w.update({"talker.model.norm.weight": np.ones(64, np.float32)})),
            r"talker.model.norm.weight has shape \[64\]; its config.json calls for \[128\]",
        ),
        (
            weights_with(lambda w: w.update({"talker.extra": np.ones(1, np.float32)})),
            "1 tensors that this converter does not know, the first is talker.extra",
        ),
        (
            weights_with(lambda w: w.update({"talker.model.norm.weight": np.ones(128, np.int32)})),
            "tensor talker.model.norm.weight has type I32",
        ),
        (
            lambda folder: (folder / "merges.txt").write_text("#version\na b c\n"),
            "merges.txt: pair 1 is 'a b c'",
        ),
        (
            lambda folder: edit(folder / "vocab.json", lambda v: v.update({"!": 9999})),
            "vocab.json: the ids are not 0 to",
        ),
        (
            lambda folder: edit(
                folder / "tokenizer_config.json", lambda c: c.pop("added_tokens_decoder")
            ),
            "added_tokens_decoder is missing",
        ),
    ],
)
def test_contents_that_do_not_fit(broken, tmp_path, spoil, message):
    spoil(broken)
    refuses(broken, tmp_path / "out", message)


def test_an_index_may_not_name_files_elsewhere(broken, tmp_path):
    index = {"weight_map": {"a": "../model.safetensors"}}
    (broken / "model.safetensors.index.json").write_text(json.dumps(index))
    refuses(broken, tmp_path / "out", "names files outside its directory")


def test_an_interrupted_conversion_leaves_nothing_and_keeps_what_was_there(checkpoints, tmp_path):
    convert_checkpoint(checkpoints["base"], tmp_path, "F16")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def stop(what, done, total):
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_checkpoint(checkpoints["customvoice"], tmp_path, "F16", progress=stop)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_place_that_cannot_be_written(checkpoints, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match=r"Cannot write into .*file"):
        convert_checkpoint(checkpoints["base"], tmp_path / "file", "F32")


def test_size_of_a_file_is_that_of_its_tensors_and_a_small_head(checkpoints, tmp_path):
    files = convert_checkpoint(checkpoints["base"], tmp_path, "Q4_0")
    tensors = read(files.talker)[1].values()
    padded = sum(math.ceil(t.n_bytes / 32) * 32 for t in tensors)
    assert 0 < files.talker.stat().st_size - padded < 100_000
