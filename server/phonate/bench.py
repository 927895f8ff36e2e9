"""`phonate bench`: how fast this machine speaks, how close that is to its bound, who else is here.

Every engine lives in a process of its own and they speak in turns, so that what else the machine
does falls on all of them alike. Figures are medians.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import platformdirs
import typer

from phonate.bench_picture import picture
from phonate.bench_report import report, report_lines
from phonate.cli_models import shown_progress
from phonate.engine.choose import wants_model
from phonate.engine.models.factory import Recipe, make_model
from phonate.engine.models.hub import HubOptions
from phonate.engine.models.model_files import ModelFiles
from phonate.engine.models.resolve import resolve
from phonate.engine.qwen.costs import MachineLimits, measure_machine
from phonate.engine.qwen.library_search import WHEELS, candidates, find_library
from phonate.errors import SetupError
from phonate.settings import Settings

WORKER = Path(__file__).with_name("bench_worker.py")
WARM_UP_FRAMES = 4
PEERS = ("exact", "fast", "wheel", "vox")
RANDOM_TYPE = "Q8_0"


@dataclass(frozen=True, slots=True)
class BenchOptions:
    frames: int = 64
    runs: int = 5
    random: str = "0.6b"
    against: tuple[str, ...] = ()
    busy: int = 0
    """Processes that do nothing but compute, beside a second turn of each engine."""
    vox_python: str | None = None
    json_file: Path | None = None
    picture_file: Path | None = None

    def __post_init__(self) -> None:
        for flag, value, low, high in (
            ("--frames", self.frames, 1, 2000),
            ("--runs", self.runs, 1, 1000),
            ("--busy", self.busy, 0, 64),
        ):
            if not low <= value <= high:
                raise SetupError(f"{flag} is {value}; it must be {low} to {high}.")
        for name in self.against:
            if name not in PEERS:
                raise SetupError(f"--against {name}: choose of {', '.join(PEERS)}.")


def bench(settings: Settings, options: BenchOptions) -> None:
    """Measure, print, and write the files asked for. Raises SetupError when an engine that was
    asked for is not here."""
    library = find_library(settings.library, settings.device)
    files, checkpoint = _model(settings, options)
    base = {
        "kind": "qwen",
        "talker": str(files.talker),
        "codec": str(files.codec),
        "library": str(library.path),
        "precision": settings.precision,
        "threads": settings.cpu_threads,
    }
    jobs = {_name_of(library.traits.label, settings.precision): base}
    for peer in options.against:
        name, job = _peer(peer, base, library.traits.label, options, checkpoint)
        jobs.setdefault(name, job)
    measured, limits = _measure(
        jobs, options, lambda: measure_machine(library, settings.cpu_threads or 0)
    )
    found = report(measured, limits, {
        "model": f"{files.talker.name}, {files.codec.name}",
        "random_weights": checkpoint is not None,
        "frames": options.frames,
        "runs": options.runs,
        "busy": options.busy,
    })  # fmt: skip
    for line in report_lines(found):
        typer.echo(line)
    _write(options.json_file, lambda: json.dumps(found, indent=1) + "\n", "--json")
    _write(options.picture_file, lambda: picture(found), "--picture")


def _write(path: Path | None, text: Any, flag: str) -> None:
    if path is None:
        return
    try:
        path.write_text(text(), encoding="utf-8")
    except OSError as exc:
        raise SetupError(f"{flag} {path} cannot be written: {exc.strerror}.") from exc
    typer.echo(f"{path} written")


def _name_of(label: str, precision: str) -> str:
    return f"{label} {precision}" if label == "phonate" else label


def _model(settings: Settings, options: BenchOptions) -> tuple[ModelFiles, Path | None]:
    """The model to speak with, and the folder of its checkpoint when it is a random one."""
    if wants_model(settings):
        with shown_progress() as progress:
            found = resolve(
                settings.model,
                talker=settings.talker,
                codec=settings.codec,
                quant=settings.quant,
                hub=HubOptions(settings.model_cache_dir, settings.local_files_only),
                progress=progress,
            )
        return found.files, None
    folder = Path(platformdirs.user_cache_dir("phonate")) / f"bench-{options.random}"
    files = ModelFiles(
        talker=folder / f"talker-{RANDOM_TYPE}.gguf", codec=folder / f"codec-{RANDOM_TYPE}.gguf"
    )
    if not (files.talker.exists() and files.codec.exists()):
        typer.echo(f"making a random model of {options.random} in {folder}", err=True)
        with shown_progress() as progress:
            files = make_model(
                Recipe(kind="base", size=options.random), folder, RANDOM_TYPE, progress=progress
            )
    return files, folder


def _peer(
    peer: str, base: dict[str, Any], label: str, options: BenchOptions, checkpoint: Path | None
) -> tuple[str, dict[str, Any]]:
    if peer in ("exact", "fast"):
        return _name_of(label, peer), {**base, "precision": peer}
    if peer == "wheel":
        found = dict(candidates())
        module = next((m for m in WHEELS if m in found), None)
        if module is None:
            raise SetupError(
                "--against wheel: it is not installed. pip install 'phonate[qwen-cpu]'"
            )
        return "wheel", {**base, "library": str(found[module]), "precision": "exact"}
    if checkpoint is None:
        raise SetupError("--against vox: it reads checkpoints, so it needs the random model.")
    python = options.vox_python or sys.executable
    model = checkpoint / "vox-q8.tmod"
    if options.vox_python is None and importlib.util.find_spec("vox") is None:
        raise SetupError(
            "--against vox: it is not installed here. Install vox-tts, in an environment of its "
            "own if you like, and name that environment's interpreter with --vox-python."
        )
    if not model.exists():
        command = [python, "-m", "vox.build", "--model", str(checkpoint), "--quant", "q8"]
        made = subprocess.run(  # noqa: S603
            [*command, "-o", str(model)], capture_output=True, text=True, check=False
        )
        if made.returncode != 0:
            last = (made.stderr.strip() or "no reason given").splitlines()[-1]
            raise SetupError(f"--against vox: its converter failed: {last}")
    return "vox", {
        "kind": "vox",
        "vox_model": str(model),
        "threads": base["threads"],
        "python": python,
    }


def _measure(
    jobs: dict[str, dict[str, Any]],
    options: BenchOptions,
    look: Callable[[], MachineLimits | None],
) -> tuple[dict[str, Any], list[MachineLimits]]:
    """What the engines answered, and what the machine could do at each turn."""
    with contextlib.ExitStack() as open_workers:
        workers = {
            name: open_workers.enter_context(_worker(name, job)) for name, job in jobs.items()
        }
        for worker in workers.values():
            worker.speak(WARM_UP_FRAMES)
        found: dict[str, Any] = {
            name: {"load_s": worker.load_s, "turns": [], "busy_turns": []}
            for name, worker in workers.items()
        }
        limits = []
        for run in range(options.runs):
            limits.append(look())
            for name, worker in workers.items():
                found[name]["turns"].append(worker.speak(options.frames))
                if options.busy:
                    with _busy_processes(options.busy):
                        found[name]["busy_turns"].append(worker.speak(options.frames))
            typer.echo(f"run {run + 1} of {options.runs}", err=True)
        return found, [limit for limit in limits if limit is not None]


@contextlib.contextmanager
def _busy_processes(n: int) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for _ in range(n):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


class Worker:
    def __init__(self, name: str, process: subprocess.Popen[str], said: IO[str]) -> None:
        self.name = name
        self.process = process
        self.said = said
        self.load_s = float(self._answer()["load_s"])

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        self.process.wait()
        self.said.seek(0)
        lines = self.said.read().strip().splitlines()
        last = lines[-1] if lines else "it gave no reason"
        raise SetupError(f"{self.name} stopped: {last}")

    def speak(self, frames: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{frames}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # _answer says why
        return self._answer()


@contextlib.contextmanager
def _worker(name: str, job: dict[str, Any]) -> Iterator[Worker]:
    package = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    python = job.get("python", sys.executable)
    environment = os.environ if job["kind"] == "vox" else {**os.environ, "PYTHONPATH": path}
    # Not a pipe: nobody reads it while the engine loads, and some print a lot.
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(  # noqa: S603
            [python, str(WORKER), json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env=environment,
        ) as process,
    ):
        try:
            yield Worker(name, process, said)
        finally:
            process.kill()
