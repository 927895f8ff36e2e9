"""What a voice may see of a text."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phonate.engine.builtin.plain_text import has_words, plain_text


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ('Wait <break time="800ms"/> here.', "Wait here."),
        ("It is <emphasis>now</emphasis> or never.", "It is now or never."),
        ('<speak><prosody rate="slow">Slowly</prosody></speak>', "Slowly"),
        ('<mstts:express-as style="sad">Oh</mstts:express-as>', "Oh"),
        ("<think>hm</think> yes", "hm yes"),
        ("<strange>a</strange> b", "a b"),
        ("one [pause:1s] two [pause] three [laughs] four", "one two three four"),
        ("&lt;break/&gt;Tom &amp; Jerry", "Tom & Jerry"),
        ("<!-- hidden -->shown<?xml version='1.0'?>", "shown"),
        ("<|im_end|>Hello<|im_start|>system", "Hello system"),
        ("<｜begin▁of▁sentence｜>Hello</s>", "Hello"),
        ("\x1b[1;31mred\x1b[0m and \x1b]0;title\x07plain \x9b2Jtext", "red and plain text"),
        ("zero\u200bwidth so\u00adft \ufeffmark \u202eleft", "zerowidth soft mark left"),
        ("N\0UL \ud800lone \udfffs", "NUL lone s"),
        ("[tomato](/həlˈO/)", "tomato"),
        ("[[x](/a/)](/b/)", "x"),
        ("[[[[x](/a/)](/b/)](/c/)](/d/)", "x (/c/) (/d/)"),
        ("see [the page](https://example.com/a_b) ![a cat](cat.png)", "see the page a cat"),
        ("a < b and c > d, 5 <6", "a < b and c > d, 5 <6"),
        ("Bob <bob@example.com>", "Bob <bob@example.com>"),
        ("**bold** __it__ `code` ~~gone~~ it`s", "bold it code gone it's"),
        ("# Title\n\nText", "Title\n\nText"),
        ("- one\n- two\n1. three", "one\ntwo\n1. three"),
        ("> quoted", "quoted"),
        ("above\n\n-----\n\nbelow", "above\n\nbelow"),
        ("```python\nx\n```", "x"),
        ("Wow!!!!!! Really????? Well.....", "Wow! Really? Well..."),
        ("Hello 😀 world 👍🏽 1️⃣", "Hello world 1"),
        ("ﬁne 𝐇𝐞𝐥𝐥𝐨 Ａｂｃ ٣ Ⅳ", "fine Hello Abc 3 IV"),
        ("你好。再见！", "你好. 再见!"),
        ("“Yes” ‘no’ it’s", "\"Yes\" 'no' it's"),
        ("5² ½ 20°C", "5² ½ 20°C"),
        ("a line that\ngoes on here", "a line that goes on here"),
        ("A poem\nOf two lines", "A poem\nOf two lines"),
        ("x" * 70 + "\nWrapped", "x" * 70 + " Wrapped"),
        ("one\r\n\r\ntwo", "one\n\ntwo"),
        ("", ""),
        (" \n\t ", ""),
        (".", "."),
        ("...", "..."),
    ],
)
def test_plain(text, plain):
    assert plain_text(text) == plain


def test_words_or_none():
    assert has_words("a")
    assert has_words("第1")
    assert has_words("日本語")
    for text in ("", " \n", ".", "...", "😀", "\u200b", '<break time="1s"/>', "[pause]", "\x1b[0m"):
        assert not has_words(text), text


NASTY = st.text(
    alphabet=st.one_of(
        st.sampled_from("<>[]()/|!&;:#*_-.~`'\"=\\\n\r\x1b\x00\x9b ab1"),
        st.characters(codec=None),
    ),
    max_size=80,
)


@given(NASTY)
def test_nothing_that_could_be_obeyed_is_left(text):
    plain = plain_text(text)
    assert "](" not in plain
    assert not set("[]{}") & set(plain)
    for char in plain:
        assert char == "\n" or unicodedata.category(char)[0] != "C", repr(char)
    assert plain == plain.strip(" ")


@pytest.mark.parametrize(
    "unit",
    [*list("<[(&`*_~#-.\n \x1b\"'"), "<a ", "[a](", "<|", "<!--", "\n ", ". ", "a-", "1.", "&a"],
)
def test_linear_time(unit):
    """A quadratic pattern takes minutes for this; a linear one 0.1 s."""
    started = time.perf_counter()
    plain_text(unit * (100_000 // len(unit)))
    assert time.perf_counter() - started < 5
