"""What the English voice is given to read."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phonate.engine.builtin.long_runs import MAX_RUN_CHARS, MAX_RUN_PARTS
from phonate.engine.builtin.spoken_english import name_marks, spoken_english


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("$5.3 billion", "$5.3 billion"),
        ("$100 after 9:30PM.", "$100 after 9:30PM."),
        ("5€, 3,50 € and £2.50", "€5, €3.50 and £2.50"),
        ("1.000,50 €", "€1000.50"),
        ("-$5 and US$7 and $ 9", "minus $5 and $7 and $9"),
        ("how many € is that", "how many euros is that"),
        ("007", "0 0 7"),
        ("0.05 at 09:30 on 05/06/2024", "0.05 at 09:30 on 05/06/2024"),
        ("12345678901234567890", "1 2 3, 4 5 6, 7 8 9, 0 1 2, 3 4 5, 6 7 8, 9 0"),
        ("123456789012345", "123456789012345"),
        ("1,2,3 and 1,000,000", "1, 2, 3 and 1,000,000"),
        ("2*3 and 2 × 3", "2 times 3 and 2 times 3"),
        ("snake_case C:\\dir", "snake case C: dir"),
        ("state-of-the-art", "state-of-the-art"),
        ("a-b-c-d-e-f", "a b c d e f"),
        ("now . Go , there !", "now. Go, there!"),
        ("see www.example.com, ok", "see w w w dot example dot com, ok"),
        ("Donaudampfschifffahrtsgesellschaft", "Donaudampfschifffahrtsge sellschaft"),
        ("don't", "don't"),
    ],
)
def test_spoken(text, spoken):
    assert spoken_english(text) == spoken


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (".", "dot"),
        ("...", "dot dot dot"),
        ("?", "question mark"),
        ("?!?!?!", "question mark exclamation mark question mark"),
        ("(", "left parenthesis"),
        ("=====", "equals equals equals"),
        ("¿", "inverted question mark"),
        ("😀", ""),
        ("", ""),
    ],
)
def test_marks_have_names(text, names):
    assert name_marks(text) == names


@given(st.text(alphabet="ab1.,-/_'()$€:@#%*+ \n", max_size=200))
def test_no_word_is_too_much_for_the_voice(text):
    spoken = spoken_english(text)
    for word in spoken.split():
        assert len(word) <= MAX_RUN_CHARS
        n_changes = sum(
            not (a.isdigit() and b.isdigit()) and not (a.isalpha() and b.isalpha())
            for a, b in itertools.pairwise(word)
        )
        assert n_changes <= MAX_RUN_PARTS


@given(st.text(alphabet="0123456789 ,.-", max_size=120))
def test_no_digit_is_dropped(text):
    before = [char for char in text if char.isdigit()]
    assert [char for char in spoken_english(text) if char.isdigit()] == before


@pytest.mark.parametrize(
    "unit", ["1", "1.", "1,", "a-", "a", "€", "$1", "1 €", "0", "a/", "x_", "-"]
)
def test_linear_time(unit):
    started = time.perf_counter()
    spoken_english(unit * (20_000 // len(unit)))
    assert time.perf_counter() - started < 5
