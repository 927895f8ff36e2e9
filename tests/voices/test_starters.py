from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from phonate.audio.reference import load_reference
from phonate.errors import SetupError
from phonate.voices.recording import pack_wav, unpack_wav
from phonate.voices.starters import StarterVoices, bundled_folder


def test_the_bundled_voices_are_whole_and_fit_to_be_cloned() -> None:
    starters = StarterVoices(bundled_folder())
    entries = starters.entries()
    assert {entry.value.name for entry in entries.values()} == {"Lark", "Merle"}
    for entry in entries.values():
        wav = starters.files(entry)["reference.wav"]
        assert 5 <= len(unpack_wav(wav)) / 24_000 <= 8
        assert np.array_equal(load_reference(wav).samples, unpack_wav(wav))
        assert pack_wav(unpack_wav(wav)) == wav
        assert entry.value.ref_text
        assert entry.value.language == "english"
        assert entry.is_starter
        assert entry.value.kind == "starter"


def test_each_says_what_may_be_done_with_it() -> None:
    for folder in (bundled_folder() / "lark", bundled_folder() / "merle"):
        text = (folder / "LICENSE").read_text("utf-8")
        assert "No person was recorded" in text
        assert "CC0" in text


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="cannot be read"):
        StarterVoices(tmp_path / "nowhere")
