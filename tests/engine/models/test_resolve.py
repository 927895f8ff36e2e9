"""What --model can mean."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phonate.engine.models.resolve import (
    GGUF_REPO,
    OFFICIAL_IDS,
    HubModel,
    LocalModel,
    hub_names,
    parse,
    resolve,
)
from phonate.errors import SetupError

HEAD = b"GGUF" + bytes(20)


@pytest.fixture
def folder(tmp_path):
    """A folder as `phonate convert` leaves it, two types."""
    for kind in ("F32", "Q8_0"):
        (tmp_path / f"talker-{kind}.gguf").write_bytes(HEAD)
        (tmp_path / f"codec-{kind}.gguf").write_bytes(HEAD)
    return tmp_path


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(("short", "official"), OFFICIAL_IDS.items())
@pytest.mark.parametrize("change", [str, str.upper, str.lower])
def test_short_names_and_official_ids_mean_the_same(short, official, change):
    expected = HubModel(GGUF_REPO, short, "Q4_K_M", None, official.split("/")[1])
    assert parse(change(short), quant="q4_k_m") == expected
    assert parse(change(official), quant="Q4_K_M") == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("me/mine", HubModel("me/mine", None, "Q8_0", None, "mine")),
        ("me/mine@v2", HubModel("me/mine", None, "Q8_0", "v2", "mine")),
        ("me/mine:1.7b-base", HubModel("me/mine", "1.7b-base", "Q8_0", None, "1.7b-base")),
        (
            f"{GGUF_REPO}:0.6b-base@refs/pr/3",
            HubModel(GGUF_REPO, "0.6b-base", "Q8_0", "refs/pr/3", "0.6b-base"),
        ),
    ],
)
def test_hub_ids(words, expected):
    assert parse(words) == expected


def test_a_revision_can_be_pinned_either_way():
    assert parse("me/mine", revision="abc") == parse("me/mine@abc")
    assert parse("me/mine@abc", revision="abc") == parse("me/mine@abc")
    with pytest.raises(SetupError, match="--revision v2 disagree"):
        parse("me/mine@v1", revision="v2")


def test_other_repositories_may_have_other_quants():
    assert parse("me/mine", quant="Q5_K_M").quant == "Q5_K_M"
    with pytest.raises(SetupError, match="--quant Q5_K_M: choose one of F32, BF16, Q8_0, Q4_K_M"):
        parse("0.6b-base", quant="Q5_K_M")


def test_published_names():
    names = hub_names("1.7b-voicedesign", "BF16")
    assert names.talker == "qwen-talker-1.7b-voicedesign-BF16.gguf"
    assert names.codec == "qwen-tokenizer-12hz-BF16.gguf"


# ---------------------------------------------------------------- paths


def test_two_paths_in_either_way(folder):
    talker, codec = folder / "talker-F32.gguf", folder / "codec-F32.gguf"
    expected = LocalModel(talker, codec, "talker-F32")
    assert parse(None, talker=talker, codec=codec) == expected
    assert parse(str(talker), codec=codec) == expected
    assert resolve(str(talker), codec=codec).files.codec == codec


def test_a_folder_and_a_quant(folder):
    assert parse(str(folder)) == LocalModel(
        folder / "talker-Q8_0.gguf", folder / "codec-Q8_0.gguf", folder.name
    )
    assert parse(str(folder), quant="f32").talker.name == "talker-F32.gguf"


def test_a_folder_with_published_names(tmp_path):
    for name in ("qwen-talker-0.6b-base-Q8_0.gguf", "qwen-tokenizer-12hz-Q8_0.gguf"):
        (tmp_path / name).write_bytes(HEAD)
    assert resolve(str(tmp_path)).files.codec.name == "qwen-tokenizer-12hz-Q8_0.gguf"


@pytest.mark.parametrize(
    ("quant", "matches"),
    [
        ("F16", "x-F16.gguf"),
        ("BF16", "x-BF16.gguf"),
        ("Q4_K", "x-Q4_K.gguf"),
        ("Q4_K_M", "x-Q4_K_M.gguf"),
    ],
)
def test_a_quant_does_not_match_inside_another(tmp_path, quant, matches):
    for kind in ("F16", "BF16", "Q4_K", "Q4_K_M"):
        (tmp_path / f"talker-x-{kind}.gguf").write_bytes(HEAD)
        (tmp_path / f"codec-x-{kind}.gguf").write_bytes(HEAD)
    assert parse(str(tmp_path), quant=quant).talker.name == f"talker-{matches}"


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("words", "options", "message"),
    [
        (None, {}, "Give --model, or --talker and --codec"),
        ("0.6b-base", {"talker": Path("t.gguf")}, "--model or --talker, not both"),
        (None, {"talker": Path("t.gguf")}, "needs --codec"),
        ("t.gguf", {}, "--talker t.gguf needs --codec"),
        ("0.6b-base", {"codec": Path("c.gguf")}, "'0.6b-base' brings its own"),
        ("0.7b-base", {}, "no name of a model. Known names: 0.6b-base, 1.7b-base"),
        ("./nothing/here", {}, "no such file or folder"),
        ("/nothing/here", {}, "no such file or folder"),
        ("a/b/c", {}, "no such file or folder"),
        ("a b/c", {}, "no such file or folder"),
        ("", {}, "Give --model, or"),
        ("~nobody-here/x", {}, "no such file or folder"),
        ("x" * 5000, {}, "no such file or folder"),
        (GGUF_REPO, {}, "holds several models. Choose one: --model 0.6b-base"),
        ("1.7b-base", {"quant": "Q9"}, "--quant Q9: choose one of"),
    ],
)
def test_what_cannot_be_meant(words, options, message):
    with pytest.raises(SetupError, match=message):
        parse(words, **options)


def test_a_folder_without_files_says_how_to_make_them(tmp_path):
    with pytest.raises(SetupError, match=r"no \.gguf file in this folder\.$"):
        parse(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SetupError, match="`phonate convert"):
        parse(str(tmp_path))


def test_a_folder_with_too_many_lists_them(folder):
    (folder / "talker-more-Q8_0.gguf").write_bytes(HEAD)
    with pytest.raises(SetupError, match=r"2 talkers and 1 codecs of --quant Q8_0.*codec-F32.gguf"):
        parse(str(folder))


def test_files_are_opened_before_anything_loads_them(folder):
    talker, codec = folder / "talker-F32.gguf", folder / "codec-F32.gguf"
    codec.write_bytes(b"<html>")
    with pytest.raises(SetupError, match=r"--codec .* is not a GGUF file"):
        resolve(None, talker=talker, codec=codec)
    codec.unlink()
    with pytest.raises(SetupError, match=r"--codec .*: No such file"):
        resolve(None, talker=talker, codec=codec)
    with pytest.raises(SetupError, match=r"--talker .*: Is a directory"):
        resolve(None, talker=folder, codec=talker)


@settings(deadline=None)
@given(
    st.text(max_size=300) | st.from_regex(r"[\w.-]{1,8}/[\w.-]{1,8}(:\w+)?(@\w+)?", fullmatch=True)
)
def test_any_words_are_understood_or_refused(words):
    with contextlib.suppress(SetupError):
        assert isinstance(parse(words), (HubModel, LocalModel))
