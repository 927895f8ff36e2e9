"""Greedy codes of our engine, of the wheel (qwentts.cpp) and of the numpy reference, side by side.

    python tools/compare_codes.py TALKER.gguf CODEC.gguf [frames] [--no-reference]

The same two files for all; x-vector prompt, the whole text laid out. Where two part, the margin is
shown: the distance between the two best logits at that very choice, by the reference. A margin of
the size of rounding means that either choice is right. The wheel wants a full-size codec.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "native"), str(ROOT / "tests" / "golden")]
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

import qtlib  # noqa: E402
import testhooks  # noqa: E402
from oracle import N_GROUPS, Talker  # noqa: E402

from phonate.engine.qwen.library_search import find_library  # noqa: E402

TEXT = "Hello world, the user and 2 assistants in town."
LANGUAGE = "english"


def params(dim: int, frames: int, layout: int = 2) -> qtlib.Params:
    embedding = (np.random.default_rng(0).standard_normal(dim) * 0.05).astype(np.float32)
    made = qtlib.tts_params(
        text=TEXT, lang=LANGUAGE, text_layout=layout, max_new_tokens=frames, **qtlib.GREEDY
    )
    made.set(ref_spk_emb=embedding, ref_spk_dim=dim)
    return made


def pointer(value: Any) -> ctypes.c_void_p:
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    return ctypes.c_void_p(int(qtlib.ffi().cast("intptr_t", value)))


def ours(talker: Path, codec: Path, dim: int, frames: int) -> tuple[np.ndarray, np.ndarray]:
    """(codes [N, 16], prompt rows [T, H])"""
    hooks = testhooks.load()
    hooks.hook_engine_new.restype = ctypes.c_void_p
    init = qtlib.init_params(talker, codec)
    engine = ctypes.c_void_p(hooks.hook_engine_new(pointer(init.struct)))
    assert engine, testhooks.error()
    shape = np.zeros(2, np.int32)
    hooks.hook_engine_shape(engine, pointer(shape))
    rows = np.zeros((200, shape[0]), np.float32)
    hidden, logits = np.zeros(shape[0], np.float32), np.zeros(shape[1], np.float32)
    asked = params(dim, frames)
    n = hooks.hook_engine_prompt(
        engine, pointer(asked.struct), pointer(rows), rows.size, pointer(hidden), pointer(logits)
    )
    codes, finish = np.zeros((frames, N_GROUPS), np.int32), np.zeros(1, np.int32)
    audio = np.zeros(frames * 1920, np.float32)
    made = hooks.hook_engine_generate(
        engine, pointer(asked.struct), pointer(codes), codes.size, pointer(audio), audio.size,
        pointer(finish),
    )  # fmt: skip
    assert made >= 0, testhooks.error()
    hooks.hook_engine_free(engine)
    return codes[:made], rows[:n]


def wheel(talker: Path, codec: Path, dim: int, frames: int) -> np.ndarray:
    """From its dump of intermediate tensors: ndim, shape, then float32 values. In a process of its
    own, since it may abort."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, str(talker), str(codec), str(frames)]
        subprocess.run(
            [*command, "--wheel-into", folder, "--dim", str(dim)],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        raw = (Path(folder) / "codes-full.bin").read_bytes()
    n_dims = int.from_bytes(raw[:4], "little")
    shape = np.frombuffer(raw, "<i4", n_dims, 4)
    return np.frombuffer(raw, "<f4", offset=4 + 4 * n_dims).reshape(shape).astype(np.int32)


def dump_wheel(talker: Path, codec: Path, dim: int, frames: int, folder: str) -> None:
    library, ffi = find_library("qwentts_cpp_cpu"), qtlib.ffi()
    lib = ffi.dlopen(str(library.path))
    init = qtlib.init_params(talker, codec)
    init.struct.abi_version = library.abi
    asked = params(dim, frames)
    asked.set(dump_dir=folder)
    asked.struct.abi_version = library.abi
    context = lib.qt_init(init.struct)
    assert lib.qt_synthesize(context, asked.struct, ffi.new("qt_audio *")) == 0


class Reference(Talker):
    """The numpy reference, fed somebody's codes, telling the margin of each of its own choices."""

    def walk(self, rows: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(its codes, its margins), both [N, 16], while it is fed `codes` frame by frame."""
        self.transformer.reset()
        hidden = self.transformer(rows)[-1]
        # Choices it does not come to count as agreed.
        chosen, margins = codes.copy(), np.full(codes.shape, np.inf)
        for t, frame in enumerate(codes):
            logits = self.logits(hidden)
            for c in {int(f[0]) for f in codes[:t]}:
                logits[c] = logits[c] * 1.05 if logits[c] < 0 else logits[c] / 1.05
            logits[2048:] = -np.inf
            chosen[t, 0], margins[t, 0] = best(logits)
            _, states = self.predict(hidden, int(frame[0]))
            for g in range(N_GROUPS - 1):
                weight = self.file[f"code_pred.lm_head.{g}.weight"]
                chosen[t, g + 1], margins[t, g + 1] = best(weight @ states["hidden"][g])
                if chosen[t, g + 1] != frame[g + 1]:
                    break  # from here on its inputs are its own, not the ones it is fed
            hidden = self.transformer((self.frame_row(frame) + self.pad)[None])[-1]
        return chosen, margins


def best(logits: np.ndarray) -> tuple[int, float]:
    top = np.argsort(logits)[-2:]
    return int(top[1]), float(logits[top[1]] - logits[top[0]])


def first_difference(a: np.ndarray, b: np.ndarray) -> tuple[int, int] | None:
    n = min(len(a), len(b))
    where = np.argwhere(a[:n] != b[:n])
    return (int(where[0][0]), int(where[0][1])) if len(where) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("talker", type=Path)
    parser.add_argument("codec", type=Path)
    parser.add_argument("frames", type=int, nargs="?", default=12)
    parser.add_argument("--no-reference", action="store_true")
    parser.add_argument("--wheel-into", help=argparse.SUPPRESS)
    parser.add_argument("--dim", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.wheel_into:
        dump_wheel(given.talker, given.codec, given.dim, given.frames, given.wheel_into)
        return
    reference = Reference(given.talker)
    dim = len(reference.codec_row("pad"))
    mine, rows = ours(given.talker, given.codec, dim, given.frames)
    theirs = wheel(given.talker, given.codec, dim, given.frames)
    walked = None if given.no_reference else reference.walk(rows, mine)
    print(f"{'frame':>5}  {'ours = wheel':>12}  {'ours = reference':>16}  smallest margin")
    for t, frame in enumerate(mine):
        same = t < len(theirs) and bool((frame == theirs[t]).all())
        told = ("-", "-")
        if walked is not None:
            told = (str(bool((frame == walked[0][t]).all())), f"{walked[1][t].min():.2e}")
        print(f"{t:>5}  {same!s:>12}  {told[0]:>16}  {told[1]}")
    pairs = {"the wheel's": theirs}
    if walked is not None:
        pairs["the reference's"] = walked[0]
    for name, other in pairs.items():
        tell(mine, name, other, walked)


def tell(
    mine: np.ndarray,
    name: str,
    other: np.ndarray,
    walked: tuple[np.ndarray, np.ndarray] | None,
) -> None:
    parted = first_difference(mine, other)
    if parted is None:
        print(f"Ours and {name} are equal in all {min(len(mine), len(other))} frames.")
        return
    t, g = parted
    print(f"Ours and {name} part at frame {t}, code {g}: {mine[t, g]} and {other[t, g]}.")
    if walked is not None:
        chosen, margin = walked[0][t, g], walked[1][t, g]
        print(f"There the reference chooses {chosen}, by a margin of {margin:.2e}.")


main()
