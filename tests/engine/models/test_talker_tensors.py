"""The tensor list against figures counted elsewhere: parameters and tensors of the releases."""

from __future__ import annotations

import functools
import math

import pytest

from phonate.engine.models.factory_configs import (
    CODEC_SIZES,
    TALKER_SIZES,
    codec_config,
    model_config,
)
from phonate.engine.models.factory_tokenizer import RELEASED_VOCAB, small_tokenizer
from phonate.engine.models.talker_tensors import codec_tensors, talker_tensors


@functools.cache
def released(kind: str, size: str) -> list:
    ids = small_tokenizer(RELEASED_VOCAB).text_ids
    return list(talker_tensors(model_config(kind, TALKER_SIZES[size], ids)))


def parameters(specs, prefix: str = "") -> int:
    return sum(math.prod(s.shape) for s in specs if s.name.startswith(prefix))


@pytest.mark.parametrize(("size", "millions"), [("0.6b", 905.8), ("1.7b", 1916.7)])
def test_parameters_of_talker_and_predictor(size, millions):
    specs = released("customvoice", size)
    assert parameters(specs) / 1e6 == pytest.approx(millions, abs=0.05)


def test_parameters_of_speaker_encoder_and_codec():
    assert parameters(released("base", "0.6b"), "speaker_encoder.") / 1e6 == pytest.approx(
        8.9, abs=0.05
    )
    codec = codec_tensors(codec_config(CODEC_SIZES["full"]))
    decoder = [s for s in codec if s.gguf and s.gguf.startswith("tok_dec.")]
    assert parameters(decoder) / 1e6 == pytest.approx(114.1, abs=0.1)


def test_number_of_tensors_in_the_gguf_files():
    kept = [s for s in released("base", "0.6b") if s.gguf]
    codec = [s for s in codec_tensors(codec_config(CODEC_SIZES["full"])) if s.gguf]
    assert (len(kept), len(codec)) == (478, 398)


def test_only_the_larger_talker_has_a_projection():
    def names(size: str) -> set[str | None]:
        return {s.gguf for s in released("base", size) if s.gguf and "mtp" in s.gguf}

    assert names("0.6b") == set()
    assert names("1.7b") == {"code_pred.mtp_proj.weight", "code_pred.mtp_proj.bias"}


@pytest.mark.parametrize("kind", ["base", "customvoice", "voicedesign"])
@pytest.mark.parametrize("size", TALKER_SIZES)
def test_names_are_unique(kind, size):
    specs = [*released(kind, size), *codec_tensors(codec_config(CODEC_SIZES["tiny"]))]
    names, gguf = [s.name for s in specs], [s.gguf for s in specs if s.gguf]
    assert len(set(names)) == len(names)
    assert len(set(gguf)) == len(gguf)
    assert any(name.startswith("speaker_encoder") for name in names) == (kind == "base")
