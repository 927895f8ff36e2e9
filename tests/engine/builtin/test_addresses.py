"""URLs, e-mail addresses and dotted names."""

from __future__ import annotations

import time

import pytest

from phonate.engine.builtin.addresses import spell_addresses, spell_dots
from phonate.engine.builtin.spoken_english import SIGNS


def squeezed(text):
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("See www.example.com.", "See w w w dot example dot com ."),
        ("https://example.org/", "example dot org"),
        (
            "http://a.example.net/some-page/x_y?q=1&r=2#top",
            "a dot example dot net slash some dash page slash x underscore y question mark q equals"
            " 1 and r equals 2 hash top",
        ),
        ("bob.smith+x@mail.co.uk", "bob dot smith plus x at mail dot co dot U K"),
        ("mailto:a@b.org now", "a at b dot org now"),
        ("go to example.com, or not", "go to example dot com , or not"),
        ("github.io", "github dot I O"),
        ("(https://example.com/a)", "( example dot com slash a )"),
        ("https://x.com/v/dQw4w9WgXcQ", "x dot com slash v slash d Q w 4 w 9 W g X c Q"),
        ("no address here. None.", "no address here. None."),
    ],
)
def test_addresses(text, spoken):
    assert squeezed(spell_addresses(text, SIGNS)) == spoken


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("node.js", "node dot js"),
        ("README.md", "README dot md"),
        ("version 1.2.3", "version 1 dot 2 dot 3"),
        ("192.168.0.1", "192 dot 168 dot 0 dot 1"),
        ("3.14", "3.14"),
        ("$5.3 billion", "$5.3 billion"),
        ("e.g. this, U.S.A. and 9 a.m.", "e.g. this, U.S.A. and 9 a.m."),
        ("a Ph.D. thesis", "a Ph.D. thesis"),
        ("the end.The next", "the end. The next"),
        ("Wait...what", "Wait...what"),
    ],
)
def test_dots(text, spoken):
    assert squeezed(spell_dots(text, SIGNS)) == spoken


def test_other_languages_use_their_own_words():
    assert squeezed(spell_addresses("www.beispiel.de", {".": "Punkt"})) == (
        "w w w Punkt beispiel Punkt D E"
    )


@pytest.mark.parametrize("unit", ["a.", "1.", "a@", "www.", "http://", "a.b", ".a", "-", "@", "/"])
def test_linear_time(unit):
    started = time.perf_counter()
    spell_dots(spell_addresses(unit * 5_000, SIGNS), SIGNS)
    assert time.perf_counter() - started < 5
