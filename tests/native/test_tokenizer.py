"""The tokenizer against Hugging Face's, on a small vocabulary and on Qwen's own.

The oracle is the package `tokenizers`; Qwen's ranks come from the package `dashscope` (a file in
it; nothing is imported). Without them the golden file stands in (make_tokenizer_golden.py).
"""

from __future__ import annotations

import base64
import ctypes
import importlib.util
import json
import random
import sys
import time
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import testhooks
from hypothesis import given, settings
from hypothesis import strategies as st

QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

TEXTS = [
    "",
    "Hello, world!",
    "assistant\nHello there.",
    "iPhone camelCase HTTPServer snake_case x86_64",
    "don't I'VE we'Ll he'D it'S 'tis they'ſq can'T",
    "  two  spaces   three \t tabs\t\tend  ",
    "line\nbreak\r\nand \n\n more\r\r\n  \n x",
    "1234567890 3.14 ½ Ⅻ ٣٤ 一二三",
    "你好，世界！今天天气怎么样？",
    "こんにちは、元気ですか？カタカナ",
    "안녕하세요 세계",
    "Привет, мир! Ёлка",
    "مرحبا بالعالم؟",
    "नमस्ते दुनिया। क्षत्रिय",
    "สวัสดีชาวโลก",
    "Grüße, naïve café – “quotes” … ‘x’",
    "e\u0301 a\u0323\u0302 \u1112\u1161\u11ab o\u0302\u0323 \u212b \u2126 \ufb01",
    "👍🏽 👩‍👩‍👧‍👦 🇩🇪 ☃️ a👍b",
    "and/or (a)/b #hash ##ing @me $5.00 100% <|im_end|> <|im_start|>user",
    "\u00a0nbsp\u2003em\u3000ideographic\u2028line\u0085next\u180emongol\u200bzero",
    "a" * 50 + " " * 50 + "!" * 50,
    "\x00\x01\x7f\ufffe\ufeffbom",
]

POINTS = st.one_of(
    st.characters(exclude_categories=["Cs", "Cn"]),
    st.sampled_from(
        list(" \t\r\n\u00a0\u3000'sStTrReEvVlLmMdDſ,.!/_-0123456789AzÉéñß中あ한ไ\u0301\u0323")
    ),
)


def packed(items: list[bytes]) -> bytes:
    return b"".join(item + b"\0" for item in items)


class Ours:
    """A qt::Tokenizer made from lists of tokens and merges."""

    def __init__(self, tokens: list[str], merges: list[str]) -> None:
        lib = testhooks.load()
        lib.hook_tokenizer_new.restype = ctypes.c_void_p
        lib.hook_tokenizer_encode.restype = ctypes.c_int64
        t, m = (packed([s.encode() for s in x]) for x in (tokens, merges))
        self.lib = lib
        self.handle = ctypes.c_void_p(
            lib.hook_tokenizer_new(t, ctypes.c_size_t(len(t)), m, ctypes.c_size_t(len(m)))
        )
        if not self.handle:
            raise RuntimeError(testhooks.error())

    def encode(self, text: str | bytes) -> list[int]:
        data = text.encode() if isinstance(text, str) else text
        ids = (ctypes.c_int32 * (4 * len(data) + 8))()
        n = self.lib.hook_tokenizer_encode(
            self.handle, data, ctypes.c_size_t(len(data)), ids, ctypes.c_size_t(len(ids))
        )
        if n < 0:
            raise ValueError(testhooks.error())
        return list(ids[:n])


def byte_symbols() -> list[str]:
    """GPT-2's printable stand-in for each of the 256 bytes."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = iter(range(0x100, 0x200))
    return [chr(b) if b in kept else chr(next(rest)) for b in range(256)]


def small_vocabulary() -> tuple[list[str], list[str]]:
    """Bytes, two whole words, and pairs whose order of merging matters."""
    merges = []
    for word in ("assistant", "user"):
        merges += [f"{word[:i]} {word[i]}" for i in range(1, len(word))]
    merges += ["a b", "b c", "ab c", "l l", "ll l", "Ġ t", "h e", "Ġt he", "# #", "## #", "Ċ Ċ"]
    merges += ["1 1", "! !", "!! !!", "Ġ Ġ", "ĠĠ ĠĠ", "¿ q"]
    return byte_symbols() + [m.replace(" ", "") for m in merges], merges


def qwen_vocabulary() -> tuple[list[str], list[str]]:
    spec = importlib.util.find_spec("dashscope")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("Qwen's vocabulary comes from the package dashscope, which is not installed")
    path = Path(spec.submodule_search_locations[0], "resources/qwen.tiktoken")
    lines = path.read_bytes().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, lines)}
    symbols = byte_symbols()

    def spelled(token: bytes) -> str:
        return "".join(symbols[b] for b in token)

    merges = []
    for token, rank in ranks.items():
        parts = [bytes([b]) for b in token]
        while len(parts) > 2:  # join as BPE would with the ranks below this token's own
            best = min(
                range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], rank)
            )
            parts[best : best + 2] = [parts[best] + parts[best + 1]]
        if len(parts) == 2:
            merges.append(f"{spelled(parts[0])} {spelled(parts[1])}")
    return [spelled(t) for t in ranks], merges


def hugging_face(tokens: list[str], merges: list[str]) -> Any:
    """Hugging Face's Qwen2 tokenizer for a vocabulary."""
    hf = pytest.importorskip("tokenizers", reason="the oracle is the package tokenizers")
    model = hf.models.BPE(
        vocab={t: i for i, t in enumerate(tokens)},
        merges=[tuple(m.split(" ")) for m in merges],
        fuse_unk=False,
        byte_fallback=False,
    )
    oracle = hf.Tokenizer(model)
    oracle.normalizer = hf.normalizers.NFC()
    oracle.pre_tokenizer = hf.pre_tokenizers.Sequence(
        [
            hf.pre_tokenizers.Split(hf.Regex(QWEN2_SPLIT), behavior="isolated", invert=False),
            hf.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return oracle


@cache
def pair(which: str) -> tuple[Ours, Any]:
    """(our tokenizer, Hugging Face's) for a vocabulary."""
    tokens, merges = small_vocabulary() if which == "small" else qwen_vocabulary()
    return Ours(tokens, merges), hugging_face(tokens, merges)


def golden() -> dict[str, Any]:
    path = Path(__file__).parents[1] / "golden" / "tokenizer-qwen.json"
    data: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return data


def test_equals_the_golden_ids_of_qwen() -> None:
    data = golden()
    released = list(data["tokens"].values())
    ours = Ours(list(data["tokens"]), data["merges"])
    assert len(data["cases"]) > 30
    for case in data["cases"]:
        assert [released[i] for i in ours.encode(case["text"])] == case["ids"], case["text"]


@pytest.mark.parametrize("which", ["small", "qwen"])
@pytest.mark.parametrize("text", TEXTS)
def test_equals_hugging_face(which: str, text: str) -> None:
    ours, oracle = pair(which)
    assert ours.encode(text) == oracle.encode(text).ids


@pytest.mark.parametrize("which", ["small", "qwen"])
@settings(deadline=None, max_examples=300)
@given(text=st.text(POINTS, max_size=60))
def test_equals_hugging_face_on_random_text(which: str, text: str) -> None:
    ours, oracle = pair(which)
    assert ours.encode(text) == oracle.encode(text).ids


def test_known_ids_of_qwen() -> None:
    ours, _ = pair("qwen")
    assert ours.encode("iPhone") == [44740]
    assert ours.encode("assistant\n") == [77091, 198]
    assert ours.encode("user") == [872]


def test_specials_are_text() -> None:
    ours, _ = pair("qwen")
    assert max(ours.encode("<|im_end|>")) < 151643
    assert len(ours.encode("<|im_end|>")) > 1


@pytest.mark.parametrize(
    "text", ["1" * 100_000, "a" * 100_000, " " * 100_000, "中" * 30_000, "ab" * 50_000]
)
def test_long_text_is_fast(text: str) -> None:
    ours, _ = pair("small")
    ours.encode(text[:100])
    start = time.perf_counter()
    ours.encode(text)
    # ~20 ms here; a quadratic merge would take minutes.
    assert time.perf_counter() - start < 3


@pytest.mark.parametrize(
    ("data", "at"),
    [
        (b"ok\xff", 2),
        (b"\xc0\x80", 0),
        (b"\xe0\x80\x80", 0),
        (b"a\xed\xa0\x80", 1),
        (b"\xf4\x90\x80\x80", 0),
        (b"abc\xe4\xb8", 3),
        (b"\x80", 0),
        (b"\xf8\x88\x80\x80\x80", 0),
    ],
)
def test_bad_utf8_is_refused(data: bytes, at: int) -> None:
    ours = Ours(*small_vocabulary())
    with pytest.raises(ValueError, match=f"not valid UTF-8 at byte {at}$"):
        ours.encode(data)


def test_random_bytes_never_crash() -> None:
    ours, rng = Ours(*small_vocabulary()), random.Random(1)
    for _ in range(2000):
        data = rng.randbytes(rng.randrange(20))
        try:
            data.decode()
        except UnicodeDecodeError:
            with pytest.raises(ValueError, match="UTF-8"):
                ours.encode(data)
        else:
            ours.encode(data)


def test_vocabulary_must_fit_its_merges() -> None:
    tokens, merges = small_vocabulary()
    with pytest.raises(RuntimeError, match=r"vocabulary: .*merges\[0\] .*not a pair"):
        Ours(tokens, ["nope"])
    with pytest.raises(RuntimeError, match="makes 'zz', which the vocabulary lacks"):
        Ours(tokens, ["z z"])
    with pytest.raises(RuntimeError, match="empty"):
        Ours([], merges)


def test_classes_equal_unicodedata() -> None:
    lib = testhooks.load()
    lib.hook_unicode_version.restype = ctypes.c_char_p
    if lib.hook_unicode_version().decode() != unicodedata.unidata_version:
        pytest.skip("the tables and this Python have different Unicode versions")
    n = sys.maxunicode + 1
    out = (ctypes.c_uint8 * n)()
    lib.hook_classes(out, ctypes.c_uint32(n))
    for cp in range(n):
        category = unicodedata.category(chr(cp))[0]
        # White_Space, unlike str.isspace, leaves out the separators U+001C..U+001F.
        space = chr(cp).isspace() and not 0x1C <= cp <= 0x1F
        assert out[cp] == (category == "L") + 2 * (category == "N") + 4 * space, hex(cp)


@settings(deadline=None, max_examples=1000)
@given(text=st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=30))
def test_nfc_equals_unicodedata(text: str) -> None:
    assert nfc(text) == unicodedata.normalize("NFC", text)


def test_nfc_of_every_code_point_and_its_decomposition() -> None:
    for cp in (c for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000):
        if unicodedata.decomposition(chr(cp)) or unicodedata.combining(chr(cp)):
            text = chr(cp) + "a" + unicodedata.normalize("NFD", chr(cp)) + "\u0323\u0301"
            assert nfc(text) == unicodedata.normalize("NFC", text), hex(cp)


def nfc(text: str) -> str:
    lib = testhooks.load()
    lib.hook_nfc.restype = ctypes.c_size_t
    data = text.encode("utf-32-le")
    out = ctypes.create_string_buffer(4 * len(data) + 64)
    n = lib.hook_nfc(data, ctypes.c_size_t(len(text)), out)
    return out.raw[: 4 * n].decode("utf-32-le")
