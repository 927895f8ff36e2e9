"""Other scripts are taken out, and told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phonate.engine.builtin.latin import latin_part


@pytest.mark.parametrize(
    ("text", "spoken", "skipped"),
    [
        ("plain", "plain", ""),
        ("Hello 世界 and Привет мир.", "Hello and .", "世界 Привет мир"),
        ("日本2024年3月", "2024 3", "日本年月"),
        ("café naïve Łódź Zürich", "café naïve Łódź Zürich", ""),
        ("tiếng Việt", "tieng Viet", ""),
        ("2πr and the α", "2 pi r and the alpha", ""),
        ("λόγος", "", "λόγος"),
        ("한국어 नमस्ते สวัสดี مرحبا", "", "한국어 नमस्ते สวัสดี مرحبا"),
        ("½ × 2 – 1 = 0 €", "½ × 2 – 1 = 0 €", ""),
        ("5 µm", "5 µm", ""),
        ("one\n\nдва\n\nthree", "one\n\n \n\nthree", "два"),
    ],
)
def test_split(text, spoken, skipped):
    assert latin_part(text) == (spoken, skipped)


@given(st.text(max_size=60))
def test_every_letter_is_spoken_or_told(text):
    spoken, skipped = latin_part(text)
    letters = sum(char.isalnum() for char in text)
    # A name ("pi") or a folded letter may be longer, never shorter.
    assert sum(char.isalnum() for char in spoken + skipped) >= letters - text.count("\u0345")
