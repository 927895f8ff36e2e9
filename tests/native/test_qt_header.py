"""native/include/qt.h: it compiles wherever it says, its example runs, its structs are the ABI."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from phonate.engine.qwen.library import declarations, foreign

ROOT = Path(__file__).parents[2]
HEADER = ROOT / "native" / "include" / "qt.h"
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
LANGUAGES = {
    "c99": ("cc", ["-x", "c", "-std=c99"]),
    "c17": ("cc", ["-x", "c", "-std=c17"]),
    "c++11": ("c++", ["-x", "c++", "-std=c++11"]),
    "c++20": ("c++", ["-x", "c++", "-std=c++20"]),
}

# Offsets on LP64 and LLP64, measured on qwentts.cpp's own header: field -> offset.
INIT_ABI_5 = {
    "abi_version": 0,
    "talker_path": 8,
    "codec_path": 16,
    "use_fa": 24,
    "clamp_fp16": 25,
    "max_batch": 28,
    "codec_chunk_sec": 32,
}
TTS_ABI_4 = {
    "abi_version": 0,
    "text": 8,
    "lang": 16,
    "instruct": 24,
    "speaker": 32,
    "ref_audio_24k": 40,
    "ref_n_samples": 48,
    "ref_text": 56,
    "seed": 64,
    "max_new_tokens": 72,
    "do_sample": 76,
    "temperature": 80,
    "top_k": 84,
    "top_p": 88,
    "repetition_penalty": 92,
    "subtalker_do_sample": 96,
    "subtalker_temperature": 100,
    "subtalker_top_k": 104,
    "subtalker_top_p": 108,
    "dump_dir": 112,
    "cancel": 120,
    "cancel_user_data": 128,
    "on_chunk": 136,
    "on_chunk_user_data": 144,
    "ref_spk_emb": 152,
    "ref_spk_dim": 160,
    "ref_codes": 168,
    "ref_T": 176,
}
TTS_ABI_5 = TTS_ABI_4 | {
    "onset_silence_ids": 184,
    "onset_silence_id_count": 192,
    "onset_silence_ban_frames": 196,
}
INIT_ABI_6 = INIT_ABI_5 | {
    "talker_kv_size": 36,
    "n_threads": 40,
    "precision": 44,
    "stream_frames_max": 48,
}
TTS_ABI_6 = TTS_ABI_5 | {
    "no_repeat_ngram_size": 200,
    "loop_max_period": 204,
    "loop_repeats": 208,
    "loop_window": 212,
    "text_layout": 216,
    "first_chunk_frames": 220,
    "flow": 224,
    "flow_user_data": 232,
}
SIZES = {"qt_init_params": 56, "qt_tts_params": 240, "qt_audio": 24, "qt_voice_ref": 32}

needs_64_bit = pytest.mark.skipif(sys.maxsize < 1 << 32, reason="the offsets are those of 64 bit")


def compiler(name: str) -> str:
    path = shutil.which(name) or shutil.which("gcc" if name == "cc" else "g++")
    if path is None:
        pytest.skip(f"no {name} on this machine")
    return path


def compile_text(text: str, language: str, tmp_path: Path, *more: str) -> Path:
    name, flags = LANGUAGES[language]
    source, out = tmp_path / "program.c", tmp_path / "program.out"
    source.write_text(text, encoding="utf-8")
    command = [compiler(name), *flags, *STRICT, f"-I{HEADER.parent}", str(source), "-o", str(out)]
    # files after it are libraries again, not more source
    command += ["-x", "none"]
    done = subprocess.run([*command, *more], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


def example() -> str:
    """The program in the header's first comment."""
    comment = HEADER.read_text(encoding="utf-8").split("*/", 1)[0]
    lines = re.findall(r"^ {7}(.*)$|^$", comment, flags=re.MULTILINE)
    start = next(i for i, line in enumerate(lines) if line.startswith("#include"))
    end = max(i for i, line in enumerate(lines) if line == "}")
    return "\n".join(lines[start : end + 1]) + "\n"


@pytest.mark.parametrize("language", LANGUAGES)
def test_header_alone_compiles_strictly(language: str, tmp_path: Path) -> None:
    text = '#include "qt.h"\n#include "qt.h"\nint unused(void);\nint unused(void) { return 0; }\n'
    compile_text(text, language, tmp_path, "-c")


@pytest.mark.parametrize("language", ["c99", "c++20"])
def test_example_on_top_is_a_whole_program(language: str, tmp_path: Path) -> None:
    text = example()
    assert "int main(" in text
    compile_text(text, language, tmp_path, "-c")


@needs_64_bit
def test_offsets_are_the_abi(tmp_path: Path) -> None:
    """Static asserts in C, so that it is the compiler's layout and not cffi's that is checked."""
    lines = ["#include <stddef.h>", '#include "qt.h"']
    for struct, fields in (("qt_init_params", INIT_ABI_6), ("qt_tts_params", TTS_ABI_6)):
        lines += [
            f"typedef char {struct}_{name}[offsetof({struct}, {name}) == {offset} ? 1 : -1];"
            for name, offset in fields.items()
        ]
    lines += [
        f"typedef char size_{name}[sizeof({name}) == {size} ? 1 : -1];"
        for name, size in SIZES.items()
    ]
    compile_text("\n".join(lines) + "\n", "c99", tmp_path, "-c")


@needs_64_bit
@pytest.mark.parametrize(
    ("struct", "fields"), [("qt_init_params", INIT_ABI_6), ("qt_tts_params", TTS_ABI_6)]
)
def test_binding_sees_the_same_layout(struct: str, fields: dict[str, int]) -> None:
    seen = {name: field.offset for name, field in foreign().typeof(struct).fields}
    assert seen == fields
    assert foreign().sizeof(struct) == SIZES[struct]


def test_declarations_are_cut_not_copied() -> None:
    cut = declarations(
        "int hidden(void);\n/* cffi:begin */\n/* a */ QT_API int f(void);\n/* cffi:end */"
    )
    assert cut.split() == ["int", "f(void);"]
    whole = declarations(HEADER.read_text(encoding="utf-8"))
    assert "QT_API" not in whole
    assert "/*" not in whole
    assert "#if" not in whole


def test_every_function_says_its_statuses_or_its_failure() -> None:
    """The header is the manual: each function has a comment right above it."""
    region = HEADER.read_text(encoding="utf-8").split("cffi:begin", 1)[1]
    functions = re.findall(r"^QT_API .*?(qt_\w+)\(", region, flags=re.MULTILINE)
    assert len(functions) == 21
    for name in functions:
        before = re.split(rf"^QT_API .*?{name}\(", region, flags=re.MULTILINE)[0].rstrip()
        assert before.endswith("*/"), f"{name} has no comment"


@pytest.mark.skipif(os.name != "posix", reason="links against a shared object")
def test_example_speaks(tmp_path: Path, library, model_files) -> None:  # type: ignore[no-untyped-def]
    """The program of the manual, built against a real library, speaks."""
    folder = library.path.parent
    text = example().replace("params.lang =", "params.max_new_tokens = 2;\nparams.lang =")
    program = compile_text(text, "c99", tmp_path, str(library.path), f"-Wl,-rpath,{folder}")
    files = model_files("base")
    done = subprocess.run(
        [str(program), str(files.talker), str(files.codec), "Hello"],
        capture_output=True,
        check=False,
        env={**os.environ, "GGML_NO_BACKTRACE": "1"},
    )
    assert done.returncode == 0, done.stderr.decode()
    assert len(done.stdout) == 2 * 1920 * 4
