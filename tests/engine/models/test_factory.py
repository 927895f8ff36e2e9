"""Random checkpoints: the same bytes each time, in the official layout, at sensible loudness.
(The bytes themselves are pinned in tests/golden/hashes.json.)"""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from phonate.engine.models import factory_weights
from phonate.engine.models.factory import Recipe, make_checkpoint, make_model
from phonate.engine.models.factory_weights import pieces
from phonate.engine.models.talker_tensors import Role, TensorSpec
from phonate.errors import SetupError


def digests(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_same_recipe_gives_the_same_bytes(tmp_path):
    for name, recipe in (("a", Recipe()), ("b", Recipe()), ("c", Recipe(seed=1))):
        make_checkpoint(recipe, tmp_path / name)
    a, b, c = (digests(tmp_path / name) for name in "abc")
    assert a == b
    assert {name for name in a if a[name] != c[name]} == {
        "model.safetensors",
        "speech_tokenizer/model.safetensors",
    }
    assert set(a) == {
        "config.json",
        "generation_config.json",
        "merges.txt",
        "model.safetensors",
        "preprocessor_config.json",
        "speech_tokenizer/config.json",
        "speech_tokenizer/model.safetensors",
        "speech_tokenizer/preprocessor_config.json",
        "tokenizer_config.json",
        "vocab.json",
    }


def test_kinds_share_the_weights_they_have_in_common(tmp_path):
    make_checkpoint(Recipe(kind="base", dtype="F32"), tmp_path / "a")
    make_checkpoint(Recipe(kind="customvoice", dtype="F32"), tmp_path / "b")
    name = "talker.model.layers.0.self_attn.q_proj.weight"
    a, b = (
        safe_open(tmp_path / k / "model.safetensors", "np").get_tensor(name) for k in ("a", "b")
    )
    assert (a == b).all()


@pytest.mark.parametrize(("dtype", "official"), [("BF16", "BF16"), ("F32", "F32")])
def test_the_type_of_the_talkers_weights(tmp_path, dtype, official):
    make_checkpoint(Recipe(dtype=dtype), tmp_path)
    with safe_open(tmp_path / "model.safetensors", "np") as file:
        assert file.get_slice("talker.codec_head.weight").get_dtype() == official
    with safe_open(tmp_path / "speech_tokenizer" / "model.safetensors", "np") as file:
        assert file.get_slice("decoder.pre_conv.conv.weight").get_dtype() == "F32"


def test_the_end_of_speech_row_is_as_loud_as_asked(tmp_path):
    for name, gain in (("plain", 1.0), ("loud", 2.0)):
        make_checkpoint(Recipe(dtype="F32", eos_gain=gain), tmp_path / name)
    plain, loud = (
        safe_open(tmp_path / n / "model.safetensors", "np").get_tensor("talker.codec_head.weight")
        for n in ("plain", "loud")
    )
    assert (loud[2150] == 2 * plain[2150]).all()
    assert (np.delete(loud, 2150, 0) == np.delete(plain, 2150, 0)).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "custom_voice"}, "--kind custom_voice: choose one of base, customvoice"),
        ({"size": "huge"}, "--size huge: choose one of tiny, tiny-proj, 0.6b, 1.7b"),
        ({"codec": "half"}, "--codec half: choose one of tiny, full"),
        ({"dtype": "F16"}, "--dtype F16: choose one of BF16, F32"),
        ({"seed": -1}, "--seed -1: choose 0 to 4294967295"),
        ({"eos_gain": float("nan")}, "--eos_gain nan: choose 0 to 100".replace("_", "-")),
    ],
)
def test_recipes_are_checked(fields, message):
    with pytest.raises(SetupError, match=message):
        Recipe(**fields)


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match=r"Cannot write .*file"):
        make_checkpoint(Recipe(), tmp_path / "file")


def test_make_model_makes_checkpoint_and_files(tmp_path):
    heard = []
    files = make_model(
        Recipe(kind="voicedesign"), tmp_path, "Q8_0", progress=lambda *event: heard.append(event)
    )
    assert files.talker.is_file()
    assert files.codec.is_file()
    assert json.loads((tmp_path / "config.json").read_text())["tts_model_type"] == "voice_design"
    assert list(dict.fromkeys(what for what, _, _ in heard)) == [
        "model.safetensors",
        "speech_tokenizer/model.safetensors",
        "talker-Q8_0.gguf",
        "codec-Q8_0.gguf",
    ]
    assert all(0 <= done <= total for _, done, total in heard)


# ---------------------------------------------------------------- single tensors


@settings(deadline=None)
@given(st.integers(1, 400), st.integers(1, 40), st.integers(1, 3000))
def test_pieces_of_any_size_join_to_the_same_tensor(rows, width, piece):
    spec = TensorSpec("some.weight", (rows, width), "x", fan_in=width)
    whole = np.concatenate(list(pieces(spec, 3, "F32", 1.0)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(factory_weights, "PIECE_ELEMENTS", piece)
        cut = list(pieces(spec, 3, "F32", 1.0))
    assert all(len(part) <= max(piece, width) for part in cut)
    assert (np.concatenate(cut) == whole).all()


def test_spread_follows_the_number_of_products():
    spec = TensorSpec("some.weight", (2000, 400), "x", fan_in=400)
    values = np.concatenate(list(pieces(spec, 0, "F32", 1.0)))
    assert values.std() == pytest.approx(1 / 20, rel=0.01)
    assert abs(values.mean()) < 1e-3


def test_a_codebook_holds_counts_times_vectors_and_one_unused_row():
    spec = TensorSpec("book.sum", (64, 8), "x", Role.CODEBOOK, "book.usage")
    counts = np.concatenate(
        list(pieces(TensorSpec("book.usage", (64,), None, Role.USAGE), 0, "F32", 1))
    )
    sums = np.concatenate(list(pieces(spec, 0, "F32", 1))).reshape(64, 8)
    assert counts[7] == 0
    assert (sums[7] == 0).all()
    used = np.delete(np.arange(64), 7)
    assert (counts[used] > 0.5).all()
    assert (sums[used] / counts[used, None]).std() == pytest.approx(0.5, rel=0.1)


def test_known_values():
    """Pins the arithmetic: these come from the description in factory_weights."""
    spec = TensorSpec("x", (4,), "x", Role.NORM)
    raw = np.random.PCG64(np.random.SeedSequence([9, 0x8CDC1683])).random_raw()
    ints = [(int(raw) >> shift) & 0xFFFF for shift in (0, 16, 32, 48)]
    step = np.float32(0.1 * 12**0.5 / 65536)
    expected = [np.float32(1) + np.float32(i - 32767.5) * step for i in ints]
    assert np.concatenate(list(pieces(spec, 9, "F32", 1.0))).tolist() == [
        float(e) for e in expected
    ]
