"""The border itself, against a made-up ABI 6 or 5 library: statuses, messages, callbacks."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from phonate.engine.base import CancelToken, Samples, SynthesisRequest
from phonate.engine.models.convert import ModelFiles
from phonate.engine.qwen.context import ContextOptions
from phonate.engine.qwen.engine import QwenEngine
from phonate.engine.qwen.library import Library, open_library
from phonate.errors import (
    EngineFailure,
    InvalidRequest,
    OutputError,
    PhonateError,
    SetupError,
    UnsupportedOperation,
)

HEADER_DIR = Path(__file__).parents[3] / "native" / "include"

# The seed says what happens: below 0 that status is returned, 7 makes no audio, else frames are
# made until max_new_tokens. With ABI 5 the message stays what it was and the log tells why.
FAKE = r"""
#include <string.h>
#include <unistd.h>
#include "qt.h"

static qt_log_cb log_cb;
static void *log_data;
static int n_frames;

const char *qt_version(void) { return "fake"; }
const char *qt_last_error(void) {
    return ABI == 6 ? "some_field: was wrong" : "an older failure";
}
void qt_log_set(qt_log_cb cb, void *data) { log_cb = cb; log_data = data; }
static void defaults(qt_tts_params *p) {
    memset(p, 0, sizeof *p);
    p->abi_version = ABI;
    p->seed = -1;
    p->max_new_tokens = 2048;
    p->do_sample = p->subtalker_do_sample = 1;
    p->temperature = p->subtalker_temperature = 0.9f;
    p->top_k = p->subtalker_top_k = 50;
    p->top_p = p->subtalker_top_p = 1.0f;
    p->repetition_penalty = 1.05f;
}
static unsigned char scratch[sizeof(qt_tts_params)];
void qt_tts_default_params(qt_tts_params *p) {
    qt_tts_params d;
    defaults(&d);
    if (ABI == 6) d.flow_user_data = scratch; else d.onset_silence_ban_frames = 0x01010101;
    memcpy(scratch, &d, sizeof d);
    memcpy(p, scratch, ABI == 6 ? 240 : 200);
}
void qt_init_default_params(qt_init_params *p) {
    qt_init_params d;
    memset(&d, 1, sizeof d);
    d.abi_version = ABI;
    memcpy(scratch, &d, sizeof d);
    memcpy(p, scratch, ABI == 6 ? 56 : 40);
}
qt_context *qt_init(const qt_init_params *p) {
    return p->codec_chunk_sec == 1.0f ? 0 : (qt_context *)scratch;
}
void qt_free(qt_context *c) { (void)c; }
int qt_synthesize(qt_context *c, const qt_tts_params *p, qt_audio *o) {
    static float samples[QT_SAMPLES_PER_FRAME];
    int i;
    (void)c; (void)o;
    n_frames = 0;
    if (p->seed < 0) {
        if (log_cb) log_cb(QT_LOG_ERROR, "the reason in the log", log_data);
        return (int)p->seed;
    }
    if (p->seed == 7) return 0;
    for (i = 0; i < p->max_new_tokens; i++) {
        if (p->cancel(p->cancel_user_data)) return QT_STATUS_CANCELLED;
        if (ABI == 6) {
            int flow;
            while ((flow = p->flow(p->flow_user_data)) == QT_FLOW_WAIT) {
                if (p->cancel(p->cancel_user_data)) return QT_STATUS_CANCELLED;
                usleep(1000);
            }
            if (flow == QT_FLOW_CANCEL) return QT_STATUS_CANCELLED;
        }
        n_frames++;
        samples[0] = (float)i;
        if (!p->on_chunk(samples, QT_SAMPLES_PER_FRAME, p->on_chunk_user_data))
            return QT_STATUS_CANCELLED;
    }
    return 0;
}
void qt_audio_free(qt_audio *a) { (void)a; }
int qt_extract_voice_ref(qt_context *c, const float *a, int n, qt_voice_ref *o) {
    (void)c; (void)a; (void)n; (void)o;
    return -4;
}
void qt_voice_ref_free(qt_voice_ref *r) { (void)r; }
#if ABI == 6
const char *qt_build_info(void) { return "{}"; }
qt_result qt_last_result(void) {
    qt_result r;
    memset(&r, 0, sizeof r);
    r.n_frames = n_frames;
    r.n_text_tokens = 41;
    r.finish_reason = n_frames == 3 ? QT_FINISH_LOOP : QT_FINISH_STOP;
    return r;
}
int qt_init_default_params_abi(qt_init_params *p, int v) { (void)p; (void)v; return 0; }
int qt_tts_default_params_abi(qt_tts_params *p, int v) { (void)p; (void)v; return 0; }
#endif
"""


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Library]:
    gcc = shutil.which("gcc") or shutil.which("cc")
    if gcc is None or sys.platform == "win32":
        pytest.skip("needs a C compiler to make libraries")
    folder = tmp_path_factory.mktemp("fake")

    def make(abi: int) -> Library:
        source, path = folder / f"fake{abi}.c", folder / f"libfake{abi}.so"
        if not path.exists():
            source.write_text(FAKE, encoding="utf-8")
            command = [gcc, "-shared", "-fPIC", "-w", f"-DABI={abi}", f"-I{HEADER_DIR}"]
            subprocess.run([*command, str(source), "-o", str(path)], check=True)
        return open_library(path)

    return make


@pytest.fixture
def open_fake(
    fake: Callable[[int], Library], made_model: Callable[[str], ModelFiles]
) -> Callable[..., QwenEngine]:
    def make(abi: int = 6, **options: object) -> QwenEngine:
        talker = made_model("base").talker
        codec = made_model("base" if abi == 6 else "full-codec").codec
        return QwenEngine(talker, codec, library=fake(abi), options=ContextOptions(**options))  # type: ignore[arg-type]

    return make


def ask(engine: QwenEngine, seed: int, frames: int = 2, sink=None, token=None):  # type: ignore[no-untyped-def]
    request = SynthesisRequest("Hello", seed=seed, max_new_tokens=frames)
    return engine.synthesize(request, sink or (lambda _s: True), token or CancelToken())


STATUSES: list[tuple[int, type[PhonateError], str | None]] = [
    (-2, UnsupportedOperation, "unsupported_operation"),
    (-3, EngineFailure, "engine_failure"),
    (-4, EngineFailure, "out_of_memory"),
    (-5, PhonateError, "cancelled"),
    (-9, EngineFailure, "engine_failure"),
]


@pytest.mark.parametrize(("status", "error", "code"), STATUSES)
def test_statuses_become_exceptions(
    open_fake: Callable[..., QwenEngine], status: int, error: type[PhonateError], code: str
) -> None:
    with pytest.raises(error) as caught:
        ask(open_fake(), status)
    assert caught.value.code == code
    if status not in (-4, -5):
        assert "some_field: was wrong" in caught.value.message


def test_refused_values_are_the_clients_fault(open_fake: Callable[..., QwenEngine]) -> None:
    engine = open_fake()
    plan = engine._checker.plan(SynthesisRequest("Hello", seed=1))
    object.__setattr__(plan, "seed", -1)  # what the checks never let through
    outcome, call = engine._speak(plan, lambda _s: True, CancelToken())
    with pytest.raises(InvalidRequest, match="some_field: was wrong"):
        engine._result(plan, outcome, call)


def test_stale_message_is_not_believed(open_fake: Callable[..., QwenEngine]) -> None:
    """ABI 5: qt_last_error holds what an earlier call left; the log has the reason."""
    with pytest.raises(EngineFailure, match="the reason in the log"):
        ask(open_fake(5), -3)


def test_failed_load_names_the_files(open_fake: Callable[..., QwenEngine]) -> None:
    with pytest.raises(SetupError, match=r"could not load .*talker-F32\.gguf"):
        open_fake(codec_chunk_sec=1.0)


def test_result_of_the_library_is_used(open_fake: Callable[..., QwenEngine]) -> None:
    result = ask(open_fake(), 1, frames=2)
    assert (result.finish_reason, result.n_frames, result.n_text_tokens) == ("stop", 2, 41)
    assert ask(open_fake(), 1, frames=3).finish_reason == "length", "a loop never says it is done"


def test_result_is_worked_out_where_the_library_has_none(
    open_fake: Callable[..., QwenEngine],
) -> None:
    result = ask(open_fake(5), 1, frames=2)
    assert (result.finish_reason, result.n_frames) == ("length", 2)
    assert result.n_text_tokens == 1


def test_silence_instead_of_audio_is_an_output_error(
    open_fake: Callable[..., QwenEngine],
) -> None:
    with pytest.raises(OutputError):
        ask(open_fake(), 7)


def test_failed_extraction_says_so(open_fake: Callable[..., QwenEngine]) -> None:
    import numpy as np

    with pytest.raises(EngineFailure, match="out of memory"):
        open_fake().extract_voice(np.zeros(24000, np.float32), None)


def test_slow_listener_makes_its_lane_wait_but_not_the_other(
    open_fake: Callable[..., QwenEngine],
) -> None:
    """ABI 6 with two lanes: while one listener is paused its lane stops making frames."""
    engine = open_fake(max_batch=2)
    release, got = threading.Event(), []

    def paused(samples: Samples) -> bool:
        got.append(float(samples[0]))
        return release.wait(30)

    lane = threading.Thread(target=ask, args=(engine, 1, 2000, paused))
    lane.start()
    while not got:
        time.sleep(0.01)
    assert ask(engine, 2, frames=500).n_frames == 500
    assert len(got) == 1
    assert engine._places._free == 1, "its frames are not made ahead without bound"
    release.set()
    lane.join(30)
    assert got == list(range(2000)), "no frame was lost or reordered by waiting"
    engine.close()


def test_waiting_lane_can_be_cancelled(open_fake: Callable[..., QwenEngine]) -> None:
    engine = open_fake(max_batch=2)
    token, first = CancelToken(), threading.Event()
    results = []

    def paused(_samples: Samples) -> bool:
        first.set()
        return not token.wait(30)

    lane = threading.Thread(target=lambda: results.append(ask(engine, 1, 2000, paused, token)))
    lane.start()
    assert first.wait(10)
    time.sleep(0.1)  # the queue is full, the lane waits
    token.set("gone")
    lane.join(10)
    assert results[0].finish_reason == "cancelled"
    assert results[0].n_frames < 100
    engine.close()
