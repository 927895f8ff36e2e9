"""Cutting text into what a voice speaks in one go."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phonate.engine.builtin.pieces import Break, cut


def texts(text, limit=160):
    return [piece.text for piece in cut(text, limit)]


def test_sentences_stay_whole():
    assert texts('He said hi! "Yes." Dr. Smith met J. K. Rowling at 9 a.m. sharp. Really?') == [
        "He said hi!",
        '"Yes."',
        "Dr. Smith met J. K. Rowling at 9 a.m. sharp.",
        "Really?",
    ]


def test_every_break_has_its_pause():
    pieces = cut("One. Two, three\nFour\n\nFive", 10)
    assert pieces == [
        ("One.", Break.SENTENCE),
        ("Two, three", Break.SENTENCE),
        ("Four", Break.PARAGRAPH),
        ("Five", Break.END),
    ]
    assert Break.PARAGRAPH.value > Break.SENTENCE.value > Break.CLAUSE.value > Break.WORD.value


def test_long_sentences_are_cut_after_a_clause_else_between_words():
    clause = cut("a " * 60 + "b; " + "c " * 60, 160)
    assert [piece.text[-1] for piece in clause] == [";", "c"]
    assert clause[0].end is Break.CLAUSE
    words = cut("word " * 100, 160)
    assert all(piece.end is Break.WORD for piece in words[:-1])
    assert min(len(piece.text) for piece in words) > 80, "no lonely last word"


def test_a_word_that_fits_nowhere_is_cut():
    assert texts("x" * 350) == ["x" * 160, "x" * 160, "x" * 30]
    assert texts("a " + "x" * 161) == ["a", "x" * 160, "x"]


@pytest.mark.parametrize("text", ["", " ", "\n\n", "\n \n"])
def test_blank(text):
    assert cut(text, 160) == []


@given(st.text(alphabet="aB1.,;:!?-\"') \n", max_size=500), st.integers(8, 160))
def test_nothing_is_lost_and_nothing_too_long(text, limit):
    pieces = cut(text, limit)
    assert all(0 < len(piece.text) <= limit for piece in pieces)
    assert "".join("".join(p.text for p in pieces).split()) == "".join(text.split())
    assert [p.end for p in pieces].count(Break.END) == (1 if pieces else 0)


@pytest.mark.parametrize("unit", ["a", ". ", "a. ", "A. ", "\n", "a\n", "., ", '."'])
def test_linear_time(unit):
    started = time.perf_counter()
    cut(unit * (100_000 // len(unit)), 160)
    assert time.perf_counter() - started < 5
