"""Write tokenizer-qwen.json: how Qwen's own tokenizer reads some texts.

usage: python make_tokenizer_golden.py      (needs the packages tokenizers and dashscope)

The released vocabulary has 151,387 merges (4 MB). The file holds only those that can come up in its
texts, that is whose result is part of a text's bytes: they give the same ids as all would.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "native"))

import test_tokenizer as source  # noqa: E402

MORE_TEXTS = [
    "The quick brown fox jumps over the lazy dog. It's 5 o'clock, isn't it?",
    "Ich heiße Müller und wohne in der Königstraße 12, Düsseldorf.",
    "L'été dernier, nous étions à l'île d'Oléron; c'était génial !",
    "¿Dónde está la biblioteca? ¡Qué día tan bonito!",
    "我想买三个苹果，两瓶水和一本书。请问多少钱？谢谢！",
    "東京タワーの高さは333メートルです。お腹が空きました。",
    "오늘 날씨가 정말 좋네요. 산책하러 갈까요?",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "def main(argv): return [x**2 for x in range(10) if x % 2 == 0]",
    "assistant\nHello, world!\n\nuser\n",
]


def main() -> None:
    tokens, merges = source.qwen_vocabulary()
    texts = source.TEXTS + MORE_TEXTS
    oracle = source.hugging_face(tokens, merges)
    symbols = source.byte_symbols()
    spelled = {
        "".join(symbols[b] for b in oracle.normalizer.normalize_str(t).encode()) for t in texts
    }
    everything = "\n".join(spelled)
    kept = [m for m in merges if m.replace(" ", "") in everything]
    ids = {token: i for i, token in enumerate(tokens)}
    used = {s: ids[s] for s in symbols} | {(t := m.replace(" ", "")): ids[t] for m in kept}
    cases = [{"text": t, "ids": oracle.encode(t).ids} for t in texts]
    golden = {"tokens": used, "merges": kept, "cases": cases}
    text = json.dumps(golden, ensure_ascii=False, separators=(",", ":"))
    (HERE / "tokenizer-qwen.json").write_text(text.replace('{"text"', '\n{"text"') + "\n", "utf-8")


if __name__ == "__main__":
    main()
