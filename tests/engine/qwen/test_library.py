"""Which libraries are loaded, and that unknown ones are refused before a struct is read."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from phonate.engine.qwen import library_search
from phonate.engine.qwen.library import Library, declarations, foreign, open_library
from phonate.engine.qwen.library_search import OUR_NAME, candidates, find_library
from phonate.engine.qwen.library_traits import TRAITS
from phonate.errors import SetupError

HEADER_DIR = Path(__file__).parents[3] / "native" / "include"

# A library that does nothing but say which ABI it is. The default functions copy the first
# INIT_BYTES and TTS_BYTES of this header's structs, as an older or newer library would.
FAKE = r"""
#include <string.h>
#include "qt.h"

#ifndef INIT_ABI
#define INIT_ABI ABI
#endif
#ifndef INIT_DEFAULT_BYTES
#define INIT_DEFAULT_BYTES INIT_BYTES
#endif

static qt_log_cb log_cb;
static void *log_data;

const char *qt_version(void) { return "fake 1"; }
const char *qt_last_error(void) { return "because"; }
void qt_log_set(qt_log_cb cb, void *data) {
    log_cb = cb;
    log_data = data;
    if (cb) cb(QT_LOG_WARN, "hello from C", log_data);
}
static unsigned char scratch[2048];
void qt_init_default_params(qt_init_params *p) {
    qt_init_params d;
    memset(&d, 1, sizeof d);
    d.abi_version = INIT_ABI;
    memset(scratch, 1, sizeof scratch);
    memcpy(scratch, &d, sizeof d);
    memcpy(p, scratch, INIT_BYTES);
}
void qt_tts_default_params(qt_tts_params *p) {
    qt_tts_params d;
    memset(&d, 1, sizeof d);
    d.abi_version = ABI;
    memset(scratch, 1, sizeof scratch);
    memcpy(scratch, &d, sizeof d);
    memcpy(p, scratch, TTS_BYTES);
}
qt_context *qt_init(const qt_init_params *p) { (void)p; return 0; }
void qt_free(qt_context *c) { (void)c; }
int qt_synthesize(qt_context *c, const qt_tts_params *p, qt_audio *o) {
    (void)c; (void)p; (void)o; return -3;
}
void qt_audio_free(qt_audio *a) { (void)a; }
#ifndef NO_VOICES
int qt_extract_voice_ref(qt_context *c, const float *a, int n, qt_voice_ref *o) {
    (void)c; (void)a; (void)n; (void)o; return -3;
}
void qt_voice_ref_free(qt_voice_ref *r) { (void)r; }
#endif
#ifdef OURS
const char *qt_build_info(void) { return "{\"name\": \"fake\"}"; }
qt_result qt_last_result(void) { qt_result r; memset(&r, 0, sizeof r); return r; }
int qt_init_default_params_abi(qt_init_params *p, int v) { (void)p; (void)v; return 0; }
int qt_tts_default_params_abi(qt_tts_params *p, int v) { (void)p; (void)v; return 0; }
#endif
"""

SIZES = {4: (40, 184), 5: (40, 200), 6: (56, 240)}

Build = Callable[..., Path]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    gcc = shutil.which("gcc") or shutil.which("cc")
    if gcc is None or sys.platform == "win32":
        pytest.skip("needs a C compiler to make libraries")

    def make(abi: int, init: int, tts: int, *flags: str, source: str = FAKE) -> Path:
        path = tmp_path / f"libfake{len(list(tmp_path.iterdir()))}.so"
        text = path.with_suffix(".c")
        text.write_text(source, encoding="utf-8")
        sizes = [f"-DABI={abi}", f"-DINIT_BYTES={init}", f"-DTTS_BYTES={tts}"]
        command = [gcc, "-shared", "-fPIC", "-w", f"-I{HEADER_DIR}", *sizes, *flags]
        subprocess.run([*command, str(text), "-o", str(path)], check=True)
        return path

    return make


@pytest.mark.parametrize("abi", [4, 5, 6])
def test_known_abis_are_recognised_by_what_they_write(abi: int, build: Build) -> None:
    library = open_library(build(abi, *SIZES[abi], *(["-DOURS"] if abi == 6 else [])))
    assert library.abi == abi
    assert library.traits is TRAITS[abi]
    assert library.version == "fake 1"
    assert library.last_error() == "because"
    assert library.device == "cpu"


@pytest.mark.parametrize("abi", [4, 5])
def test_struct_may_end_without_its_padding(abi: int, build: Build) -> None:
    init, tts = SIZES[abi]
    assert open_library(build(abi, init - 4, tts - (4 if abi == 4 else 0))).abi == abi


UNKNOWN = {
    "a version from the future": (7, 64, 256, []),
    "a version from the past": (3, 40, 152, []),
    "no version at all": (0, 0, 0, []),
    "nonsense": (-1, 40, 200, []),
    "a longer struct under a known number": (5, 40, 216, []),
    "a shorter struct under a known number": (5, 40, 184, []),
    "a longer init struct under a known number": (5, 48, 200, []),
    "ABI 6 that is not ours": (6, 56, 240, []),
    "another layout that calls itself 6": (6, 48, 224, ["-DOURS"]),
    "two versions at once": (5, 40, 200, ["-DINIT_ABI=4"]),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_abi_is_refused_with_a_way_out(name: str, build: Build) -> None:
    abi, init, tts, flags = UNKNOWN[name]
    with pytest.raises(SetupError, match=r"unknown binary interface.*Update phonate") as caught:
        open_library(build(abi, init, tts, *flags))
    assert "ABI 4 and 5" in caught.value.message


def test_library_without_the_functions_is_refused_by_name(build: Build) -> None:
    with pytest.raises(SetupError, match="lacks qt_extract_voice_ref, qt_voice_ref_free"):
        open_library(build(5, 40, 200, "-DNO_VOICES"))


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "libqwen.so"
    path.write_bytes(b"not a library at all")
    with pytest.raises(SetupError, match="cannot be loaded"):
        open_library(path)
    with pytest.raises(SetupError, match=r"there is no such library.*libq"):
        find_library(str(tmp_path / "missing.so"))


def test_folder_is_searched_and_opened_once(build: Build, tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    shutil.copy(build(6, 56, 240, "-DOURS"), folder / OUR_NAME)
    library = find_library(str(tmp_path))
    assert library.path == (folder / OUR_NAME).resolve()
    assert find_library(str(folder)) is library
    assert library.build_info == '{"name": "fake"}'


def test_device_must_fit(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build(5, 40, 200)
    with pytest.raises(SetupError, match="built for the cpu, but --device says gpu"):
        find_library(str(path), device="gpu")
    monkeypatch.setattr(library_search, "candidates", lambda: iter([("fake", path)]))
    assert find_library(device="cpu").path == path.resolve()
    with pytest.raises(SetupError, match=r"runs on the gpu.*phonate\[qwen-cuda\]"):
        find_library(device="gpu")


def test_bad_candidate_is_passed_over_and_told(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = build(9, 40, 200), build(4, 40, 184)
    found = [("bad", bad), ("good", good)]
    monkeypatch.setattr(library_search, "candidates", lambda: iter(found))
    assert find_library().path == good.resolve()
    del found[1]
    with pytest.raises(SetupError, match=r"phonate\[qwen-cpu\].*unknown binary interface"):
        find_library()


def test_log_of_a_library_reaches_python(build: Build, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="phonate.native"):
        open_library(build(5, 40, 200))
    assert ("phonate.native", logging.WARNING, "hello from C") in caplog.record_tuples


def test_candidates_are_real_files() -> None:
    for name, path in candidates():
        assert path.is_file(), name


def test_installed_library_is_understood(library: Library) -> None:
    assert library.abi in TRAITS
    assert library.version
    assert library.build_info
    assert library.device in ("cpu", "gpu")


def test_header_without_marks_is_refused() -> None:
    with pytest.raises(SetupError, match="cffi:begin"):
        declarations("int f(void);")


def test_header_is_found_in_this_tree() -> None:
    assert foreign().sizeof("qt_tts_params") == 240
