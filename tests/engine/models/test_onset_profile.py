"""A profile counts only for the files it was made for."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from dataclasses import replace

import pytest

from phonate.engine.models import onset_profile
from phonate.engine.models.model_files import ModelFiles
from phonate.engine.models.onset_profile import PROFILES, cached_sha256, profile_for
from phonate.errors import SetupError

NAME = "qwen3_tts_12hz_0_6b_base_q8_v1"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Two files that the profile is made to fit."""
    pair = ModelFiles(tmp_path / "talker.gguf", tmp_path / "codec.gguf")
    pair.talker.write_bytes(b"talker" * 1000)
    pair.codec.write_bytes(b"codec" * 1000)
    fitting = replace(
        PROFILES[NAME],
        talker_sha256=hashlib.sha256(pair.talker.read_bytes()).hexdigest(),
        codec_sha256=hashlib.sha256(pair.codec.read_bytes()).hexdigest(),
    )
    monkeypatch.setitem(PROFILES, NAME, fitting)
    return pair


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache" / "sha256.json"


def test_the_released_profile():
    profile = PROFILES[NAME]
    assert profile.ids == (212, 215, 462, 619, 1181, 1524, 1657, 1995)
    assert profile.n_frames == 3
    assert profile.talker_sha256[:8] == "d54dbaf1"
    assert profile.codec_sha256[:8] == "1883beee"
    assert len(profile.talker_sha256) == len(profile.codec_sha256) == 64


def test_it_applies_to_its_files(files, cache):
    assert profile_for(NAME, files, cache_file=cache) is PROFILES[NAME]


@pytest.mark.parametrize("which", ["talker", "codec"])
def test_it_does_not_apply_when_one_file_differs(files, cache, caplog, which):
    path = getattr(files, which)
    path.write_bytes(path.read_bytes() + b"!")
    with caplog.at_level(logging.WARNING):
        assert profile_for(NAME, files, cache_file=cache) is None
    assert f"{NAME} is not applied: {path}" in caplog.text


def test_unknown_profiles_are_refused(files, cache):
    with pytest.raises(SetupError, match=f"--onset-silence-profile v2: choose one of {NAME}"):
        profile_for("v2", files, cache_file=cache)


def test_a_missing_file_is_an_error_not_a_mismatch(files, cache):
    files.codec.unlink()
    with pytest.raises(SetupError, match=r"Cannot read .*codec.gguf"):
        profile_for(NAME, files, cache_file=cache)


# ---------------------------------------------------------------- the cache of hashes


def test_a_file_is_read_once(files, cache, monkeypatch):
    first = cached_sha256(files.talker, cache)
    monkeypatch.setattr(onset_profile.hashlib, "sha256", None)
    assert cached_sha256(files.talker, cache) == first


def test_a_changed_file_is_read_again(files, cache):
    first = cached_sha256(files.talker, cache)
    files.talker.write_bytes(b"TALKER" * 1000)
    os.utime(files.talker, ns=(1, 1))
    assert cached_sha256(files.talker, cache) != first


def test_a_link_is_what_it_points_to(files, cache, tmp_path):
    first = cached_sha256(files.talker, cache)
    (tmp_path / "link").symlink_to(files.talker)
    assert cached_sha256(tmp_path / "link", cache) == first
    assert len(json.loads(cache.read_text())) == 1


@pytest.mark.parametrize("text", ["{", "[]", '{"x": 1}', ""])
def test_a_spoilt_cache_is_ignored(files, cache, text):
    cache.parent.mkdir()
    cache.write_text(text)
    assert cached_sha256(files.codec, cache) == hashlib.sha256(files.codec.read_bytes()).hexdigest()
    assert json.loads(cache.read_text())


def test_a_cache_that_cannot_be_written_is_no_error(files, tmp_path):
    (tmp_path / "file").write_text("")
    expected = hashlib.sha256(files.codec.read_bytes()).hexdigest()
    assert cached_sha256(files.codec, tmp_path / "file" / "x" / "sha256.json") == expected
