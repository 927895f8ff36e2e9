"""What we convert loads and speaks in a native library that others wrote and ship.

Its codec sizes are fixed, so the talker is tiny and the codec full size; it aborts its process
when something displeases it, hence a child process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from gguf import GGUFReader

from phonate.engine.models import convert
from phonate.engine.models.factory import Recipe, make_model

pytest.importorskip(
    "qwentts_cpp_cpu", reason="realtimetts-qwen-native-cpu has no wheel for this machine"
)

SPEAK = """
import ctypes, json, pathlib, sys
import qwentts_cpp_cpu
from cffi import FFI
ffi = FFI()
ffi.cdef('''
typedef struct { int abi; const char *talker, *codec; bool fa, clamp; int max_batch; float chunk; }
    init_params;
typedef struct { float *samples; int n, rate, channels; } audio;
typedef struct {
    int abi; const char *text, *lang, *instruct, *speaker; const float *ref; int n_ref;
    const char *ref_text; int64_t seed; int max_new; bool sample; float temperature; int top_k;
    float top_p, penalty; bool sub_sample; float sub_temperature; int sub_top_k; float sub_top_p;
    const char *dump; void *cancel, *cancel_data, *chunk, *chunk_data; const float *emb; int dim;
    const int32_t *codes; int n_codes; const int32_t *onset; int n_onset, ban;
} tts_params;
void qt_init_default_params(init_params *);
void *qt_init(init_params *);
void qt_tts_default_params(tts_params *);
int qt_synthesize(void *, tts_params *, audio *);
const char *qt_last_error(void);
''')
talker, codec, speaker = sys.argv[1:4]
root = pathlib.Path(qwentts_cpp_cpu.__file__).parent
lib = ffi.dlopen(str(next(root.rglob('libqwen.*'))))
keep = [ffi.new('char[]', text.encode()) for text in (talker, codec, 'Hello world', speaker)]
init = ffi.new('init_params *')
lib.qt_init_default_params(init)
init.talker, init.codec = keep[0], keep[1]
context = lib.qt_init(init)
assert context != ffi.NULL, ffi.string(lib.qt_last_error())
params = ffi.new('tts_params *')
lib.qt_tts_default_params(params)
params.text, params.max_new, params.seed = keep[2], 3, 1
if speaker:
    params.speaker = keep[3]
out = ffi.new('audio *')
status = lib.qt_synthesize(context, params, out)
samples = list(out.samples[0:out.n]) if status == 0 else []
rms = (sum(x * x for x in samples) / max(1, len(samples))) ** 0.5
print(json.dumps([status, out.n, out.rate, rms]))
"""


def test_the_wheel_speaks_a_converted_model(tmp_path, monkeypatch):
    # Q4_K_M: Q4_K and Q6_K blocks of ours, decoded by ggml.
    recipe = Recipe(kind="customvoice", size="tiny-proj", codec="full")
    files = make_model(recipe, tmp_path, "Q4_K_M", codec_kind="Q8_0")
    speaks(files.talker, files.codec)
    # P4: Q4_0 and Q5_0 blocks. One codec is enough: of full size, it takes longest.
    write = convert._write
    monkeypatch.setattr(
        convert, "_write", lambda out, *rest: "talker" in out.path.name and write(out, *rest)
    )
    small = convert.convert_checkpoint(tmp_path, tmp_path, "P4")
    assert {"Q5_0", "Q4_0"} <= {t.tensor_type.name for t in GGUFReader(small.talker).tensors}
    speaks(small.talker, files.codec)


def speaks(talker, codec):
    done = subprocess.run(
        [sys.executable, "-c", SPEAK, talker, codec, "vivian"],
        env=os.environ | {"GGML_NO_BACKTRACE": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    status, n_samples, rate, rms = json.loads(done.stdout.splitlines()[-1])
    assert (status, n_samples, rate) == (0, 3 * 1920, 24000)
    assert 0.03 < rms < 0.3
