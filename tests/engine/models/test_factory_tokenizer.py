"""The small tokenizer: single tokens where the engines want them, at released ids when padded."""

from __future__ import annotations

import itertools
import json

import pytest

from phonate.engine.models.factory_tokenizer import (
    RELEASED_VOCAB,
    byte_pieces,
    small_tokenizer,
)


def encode(tokenizer, word: str) -> list[str]:
    """BPE by rank, written independently: the lowest-ranked adjacent pair first."""
    ranks = {pair: i for i, pair in enumerate(tokenizer.merges)}
    parts = [byte_pieces()[byte] for byte in word.encode()]
    while True:
        pairs = [(ranks[p], i) for i, p in enumerate(itertools.pairwise(parts)) if p in ranks]
        if not pairs:
            return parts
        _, i = min(pairs)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


@pytest.mark.parametrize("padded_to", [None, RELEASED_VOCAB])
@pytest.mark.parametrize("word", ["assistant", "user", " the", "Hello", "你", "##", "\n\n"])
def test_words_that_are_one_token(padded_to, word):
    tokenizer = small_tokenizer(padded_to)
    (piece,) = encode(tokenizer, word)
    assert piece in tokenizer.vocab


def test_every_merge_makes_a_piece_of_the_vocabulary():
    tokenizer = small_tokenizer()
    pieces = set(tokenizer.vocab)
    assert all({a, b, a + b} <= pieces for a, b in tokenizer.merges)
    assert len(set(tokenizer.merges)) == len(tokenizer.merges) == len(pieces) - 256


@pytest.mark.parametrize("padded_to", [None, RELEASED_VOCAB])
def test_ids_have_no_gaps_and_newline_is_198(padded_to):
    tokenizer = small_tokenizer(padded_to)
    ids = [*tokenizer.vocab.values(), *tokenizer.added.values()]
    assert sorted(ids) == list(range(len(ids)))
    assert tokenizer.vocab[byte_pieces()[ord("\n")]] == 198


def test_the_padded_vocabulary_has_the_released_ids():
    tokenizer = small_tokenizer(RELEASED_VOCAB)
    assert tokenizer.vocab["user"] == 872
    assert tokenizer.text_ids == {
        "im_start_token_id": 151644,
        "im_end_token_id": 151645,
        "tts_pad_token_id": 151671,
        "tts_bos_token_id": 151672,
        "tts_eos_token_id": 151673,
        "assistant_token_id": 77091,
    }


def test_files(tmp_path):
    tokenizer = small_tokenizer()
    tokenizer.write(tmp_path)
    assert json.loads((tmp_path / "vocab.json").read_text()) == tokenizer.vocab
    lines = (tmp_path / "merges.txt").read_text().splitlines()
    assert lines[0].startswith("#version")
    assert [tuple(line.split(" ")) for line in lines[1:]] == tokenizer.merges
    added = json.loads((tmp_path / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    assert {int(i): t["content"] for i, t in added.items()} == {
        i: token for token, i in tokenizer.added.items()
    }
