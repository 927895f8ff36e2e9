"""A small byte-level BPE tokenizer in the official files: vocab.json, merges.txt,
tokenizer_config.json.

The 256 bytes come first, in GPT-2's order (so "\\n" is 198, as in the released vocabulary), then
one token per merge. Padded to a released size, "user" and "assistant" keep their released ids,
and the gaps hold tokens that no text can spell.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from phonate.engine.models.talker_tensors import Config

RELEASED_VOCAB = 151643
"""Ids below the special tokens in the released vocabulary."""

_RELEASED_IDS = {"user": 872, "assistant": 77091}

_WORDS = (
    "assistant",
    "user",
    " the",
    " and",
    " of",
    " to",
    " in",
    " is",
    " it",
    " you",
    "Hello",
    " world",
    "ing",
    "tion",
    "er",
    "es",
    "on",
    "at",
    "é",
    "ü",
    "你",
    "好",
    "##",
    "#!",
    "\n\n",
    "  ",
    "..",
)
"""Each becomes one token. Two begin with '#', which a careless reader of merges.txt drops."""

_SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
    "<tts_text_bos_single>",
    "<|audio_pad|>",
)
_NOT_SPECIAL = frozenset(
    {"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"}
)
_TEXT_IDS = {
    "im_start_token_id": "<|im_start|>",
    "im_end_token_id": "<|im_end|>",
    "tts_pad_token_id": "<tts_pad>",
    "tts_bos_token_id": "<tts_text_bos>",
    "tts_eos_token_id": "<tts_text_eod>",
}


@dataclass(frozen=True, slots=True)
class SmallTokenizer:
    vocab: dict[str, int]
    merges: list[tuple[str, str]]
    added: dict[str, int]

    @property
    def text_ids(self) -> dict[str, int]:
        """The entries of config.json that name tokens."""
        ids = {key: self.added[token] for key, token in _TEXT_IDS.items()}
        return ids | {"assistant_token_id": self.vocab["assistant"]}

    def write(self, directory: Path) -> None:
        _write_json(directory / "vocab.json", self.vocab)
        lines = ["#version: 0.2", *(f"{left} {right}" for left, right in self.merges)]
        text = "\n".join(lines) + "\n"
        (directory / "merges.txt").write_bytes(text.encode())
        _write_json(directory / "tokenizer_config.json", self._settings())

    def _settings(self) -> Config:
        return {
            "add_bos_token": False,
            "add_prefix_space": False,
            "added_tokens_decoder": {
                str(i): {
                    "content": token,
                    "lstrip": False,
                    "normalized": False,
                    "rstrip": False,
                    "single_word": False,
                    "special": token not in _NOT_SPECIAL,
                }
                for token, i in self.added.items()
            },
            "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
            "bos_token": None,
            "clean_up_tokenization_spaces": False,
            "eos_token": "<|im_end|>",
            "errors": "replace",
            "model_max_length": 131072,
            "pad_token": "<|endoftext|>",
            "processor_class": "Qwen3TTSProcessor",
            "split_special_tokens": False,
            "tokenizer_class": "Qwen2Tokenizer",
            "unk_token": None,
        }


def small_tokenizer(padded_to: int | None = None) -> SmallTokenizer:
    """The tokenizer; with `padded_to` the vocabulary has that many entries below the specials."""
    pieces = list(byte_pieces().values())
    merges: list[tuple[str, str]] = []
    for word in _WORDS:
        parts = _apply([byte_pieces()[byte] for byte in word.encode()], merges)
        while len(parts) > 1:
            merges.append((parts[0], parts[1]))
            pieces.append(parts[0] + parts[1])
            parts = _apply(parts, merges[-1:])
    vocab = _place(pieces, padded_to)
    added = {token: len(vocab) + i for i, token in enumerate(_SPECIAL)}
    return SmallTokenizer(vocab, merges, added)


def byte_pieces() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte, in vocabulary order: printable bytes stand for
    themselves, the other 68 get the characters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(0x100 + i) for i, byte in enumerate(others)
    }


def _apply(parts: list[str], merges: list[tuple[str, str]]) -> list[str]:
    """Byte-pair encoding by the book: every pair of the lowest rank, again and again."""
    for left, right in merges:
        joined: list[str] = []
        for part in parts:
            if joined and joined[-1] == left and part == right:
                joined[-1] = left + right
            else:
                joined.append(part)
        parts = joined
    return parts


def _place(pieces: list[str], padded_to: int | None) -> dict[str, int]:
    if padded_to is None:
        return {piece: i for i, piece in enumerate(pieces)}
    ids: dict[int, str] = {i: piece for piece, i in _RELEASED_IDS.items()}
    free = (i for i in range(padded_to) if i not in ids)
    for piece in pieces:
        if piece not in _RELEASED_IDS:
            ids[next(free)] = piece
    # A space cannot occur in a piece (its stand-in is U+0120), so no text reaches these.
    return {ids.get(i, f"unused {i}"): i for i in range(padded_to)}


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
