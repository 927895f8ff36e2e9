from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phonate.errors import InvalidRequest
from phonate.voices.voice import clean_name, is_voice_id, name_key, new_name, voice_id


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("  Grandma ", "Grandma"),
        ("Zoë", "Zoë"),
        ("Zoe\u0308", "Zoë"),
        ("おばあちゃん", "おばあちゃん"),
        ("فاطمه\u200cزهرا", "فاطمه\u200cزهرا"),
        ("👩‍🚀", "👩‍🚀"),
        ("50% slower", "50% slower"),
        ("...", "..."),
        ("a", "a"),
        ("x" * 256, "x" * 256),
    ],
)
def test_names_of_any_script_are_kept(raw: str, name: str) -> None:
    assert clean_name(raw) == name


@pytest.mark.parametrize(
    "raw",
    [
        "", "   ", "\u3000", "x" * 257, ".", "..", "../x", "/etc/passwd", "a/b", "a\\b", "C:\\x",
        "a\0b", "\0", "a\nb", "a\x7fb", "a\x85b", "a\u2028b", "\ud800", "a\u202eb",
        "%2e%2e", "%2e%2e%2fx", "..%2fx", "%252e%252e%252f", "%2Fetc", "a%5cb", "a%00b",
        None, 7, b"x", ["x"],
    ],
)  # fmt: skip
def test_names_that_could_mean_a_path_are_refused(raw: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        clean_name(raw)
    assert caught.value.param == "name"


def test_a_refusal_does_not_repeat_the_name() -> None:
    """So the words are the same for every such name, whether a file of that name exists or not."""
    words = set()
    for raw in ("../voice.json", "/etc/passwd", "/etc/no-such-file", "a\0b"):
        with pytest.raises(InvalidRequest) as caught:
            clean_name(raw)
        words.add(caught.value.message)
    assert len(words) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Anna", "ANNA"),
        ("straße", "STRASSE"),
        ("Zoë", "zoe\u0308"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),
        ("ﬁn", "FIN"),
    ],
)
def test_names_differing_in_case_or_composition_are_one_voice(one: str, other: str) -> None:
    assert name_key(one) == name_key(other)
    assert voice_id(clean_name(one)) == voice_id(clean_name(other))


@given(st.text(min_size=1, max_size=300))
def test_an_id_is_safe_as_a_folder_name_whatever_the_name(raw: str) -> None:
    try:
        name = clean_name(raw)
    except InvalidRequest:
        return
    assert clean_name(name) == name
    assert re.fullmatch(r"voice_[0-9a-f]{24}", voice_id(name))
    assert (
        voice_id(name) == voice_id(name.casefold()) == voice_id(unicodedata.normalize("NFD", name))
    )


def test_a_new_name_must_not_look_like_an_id() -> None:
    taken = voice_id("Anna")
    assert is_voice_id(taken)
    for name in (taken, taken.upper(), f" {taken} "):
        with pytest.raises(InvalidRequest, match="looks like the id"):
            new_name(name)
    assert new_name("voice_1") == "voice_1"
