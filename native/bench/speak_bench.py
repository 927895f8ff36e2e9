"""Our engine beside the realtimetts-qwen-native-cpu wheel: the same model, in turns, in one run.

    python native/bench/speak_bench.py [--model FOLDER] [--frames 64] [--rounds 3] [--threads N]

Wall times depend on what else the machine does; the ratio of two neighbouring turns hardly does,
so that is the number to quote. Without --model a random 0.6B Q8_0 model is made first (1.3 GB, in
a temporary folder). Each engine lives in a process of its own, so that its memory can be told.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "server"), str(ROOT / "tests" / "native")]
TEXT = "The quick brown fox jumps over the lazy dog, and nobody in town has ever seen it run."
ENGINES = ("ours", "ours fast", "wheel")


def wheel_library() -> Path | None:
    found = importlib.util.find_spec("qwentts_cpp_cpu")
    if found is None or found.origin is None:
        return None
    return next(Path(found.origin).parent.glob("lib/libqwen.*"), None)


class Worker:
    """One engine, inside its own process: loads, then speaks when told to."""

    def __init__(self, engine: str, folder: Path, threads: int) -> None:
        import numpy as np
        import qtlib

        self.ffi = qtlib.ffi()
        self.ours = engine != "wheel"
        if self.ours:
            self.lib = qtlib.load()
        else:
            self.ffi.cdef("qt_context *qt_init_cpu(const qt_init_params *params, int n_threads);")
            self.lib = self.ffi.dlopen(str(wheel_library()))
        files = [next(folder.glob(f"{part}-*.gguf")) for part in ("talker", "codec")]
        self.strings = [self.ffi.new("char[]", str(f).encode()) for f in files]
        init = self.ffi.new("qt_init_params *")
        self.lib.qt_init_default_params(init)
        init.talker_path, init.codec_path = self.strings
        start = time.perf_counter()
        if self.ours:
            init.talker_kv_size, init.n_threads = 4096, threads
            init.precision = int(engine == "ours fast")
            self.context = self.lib.qt_init(init)
        else:
            self.context = self.lib.qt_init_cpu(init, threads)
        if self.context == self.ffi.NULL:
            raise SystemExit(self.ffi.string(self.lib.qt_last_error()).decode())
        self.load_s = time.perf_counter() - start
        self.voice = np.random.default_rng(0).normal(0, 0.05, 1024).astype(np.float32)

    def speak(self, frames: int) -> dict[str, Any]:
        """Streaming text, x-vector prompt; whatever the model says, `frames` frames of it."""
        params = self.ffi.new("qt_tts_params *")
        self.lib.qt_tts_default_params(params)
        text, language = self.ffi.new("char[]", TEXT.encode()), self.ffi.new("char[]", b"english")
        params.text, params.lang, params.seed = text, language, 1
        params.ref_spk_emb = self.ffi.cast("float *", self.voice.ctypes.data)
        params.ref_spk_dim = len(self.voice)
        params.max_new_tokens = frames
        chunks: list[tuple[float, int]] = []

        @self.ffi.callback("qt_audio_chunk_cb")  # type: ignore[misc]
        def on_chunk(_samples: Any, n: int, _user: Any) -> bool:
            chunks.append((time.perf_counter(), n))
            return True

        params.on_chunk = on_chunk
        start, cpu = time.perf_counter(), time.process_time()
        status = self.lib.qt_synthesize(self.context, params, self.ffi.NULL)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        if status != 0:
            raise SystemExit(self.ffi.string(self.lib.qt_last_error()).decode())
        audio_s = sum(n for _, n in chunks) / 24000
        told = {
            "rtf": seconds / audio_s,
            "cpu_rtf": cpu / audio_s,
            "first_ms": 1000 * (chunks[0][0] - start),
        }
        if self.ours:
            r = self.lib.qt_last_result()
            for stage in ("talker", "predictor", "codec"):
                told[f"{stage}_ms"] = getattr(r, f"{stage}_ms") / r.n_frames
        return told

    def serve(self) -> None:
        print(json.dumps({"load_s": self.load_s}), flush=True)
        for line in sys.stdin:
            told = self.speak(int(line))
            status = Path("/proc/self/status").read_text()
            told["rss_mb"] = int(status.split("VmRSS:")[1].split()[0]) / 1024
            print(json.dumps(told), flush=True)


class Remote:
    def __init__(self, engine: str, options: argparse.Namespace, folder: Path) -> None:
        command = [sys.executable, __file__, "--worker", engine, "--model", str(folder)]
        command += ["--threads", str(options.threads)]
        environment = {**os.environ, "GGML_NO_BACKTRACE": "1"}
        self.process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.load_s = self.answer()["load_s"]
        self.turns: list[dict[str, float]] = []

    def answer(self) -> dict[str, float]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("an engine's process ended early; run it with --worker to see why")
        return dict(json.loads(line))

    def speak(self, frames: int) -> None:
        assert self.process.stdin is not None
        print(frames, file=self.process.stdin, flush=True)
        self.turns.append(self.answer())

    def median(self, key: str) -> float:
        return statistics.median(turn[key] for turn in self.turns)


def compare(options: argparse.Namespace, folder: Path) -> None:
    names = [e for e in ENGINES if e != "wheel" or wheel_library() is not None]
    engines = {name: Remote(name, options, folder) for name in names}
    for _ in range(options.rounds):
        for engine in engines.values():
            engine.speak(options.frames)
    print(f"{'':10} {'RTF':>7} {'CPU/s':>7} {'first':>9} {'load':>7} {'RSS':>9}  ms per frame")
    for name, engine in engines.items():
        first = f"{engine.median('first_ms'):.0f} ms"
        stages = ("talker_ms", "predictor_ms", "codec_ms")
        parts = [f"{s[:-3]} {engine.median(s):.1f}" for s in stages if s in engine.turns[0]]
        print(
            f"{name:10} {engine.median('rtf'):7.2f} {engine.median('cpu_rtf'):7.2f} {first:>9} "
            f"{engine.load_s:5.1f} s {engine.median('rss_mb'):6.0f} MB  {', '.join(parts)}"
        )
    if "wheel" in engines:
        for name in names[:-1]:
            pairs = zip(engines["wheel"].turns, engines[name].turns, strict=True)
            ratio = statistics.median(w["rtf"] / o["rtf"] for w, o in pairs)
            print(f"{name}: {ratio:.1f} times as fast as the wheel")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="a folder with talker-*.gguf and codec-*.gguf")
    parser.add_argument("--frames", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--worker", choices=ENGINES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        Worker(options.worker, options.model, options.threads).serve()
    elif options.model:
        compare(options, options.model)
    else:
        from phonate.engine.factory import Recipe, make_model

        with tempfile.TemporaryDirectory() as folder:
            make_model(Recipe(kind="base", size="0.6b", codec="full"), Path(folder), "Q8_0")
            compare(options, Path(folder))


if __name__ == "__main__":
    main()
