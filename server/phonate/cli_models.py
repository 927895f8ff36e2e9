"""Commands about model files: `pull`, `convert`, and `dev make-model`.

`register(app, dev)` hangs them on the main application. Errors stay exceptions here: the caller
prints a SetupError as one line and exits with 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Bars

from phonate.engine.models.convert import convert_checkpoint
from phonate.engine.models.factory import Recipe, make_model
from phonate.engine.models.factory_configs import CODEC_SIZES, KINDS, TALKER_SIZES
from phonate.engine.models.gguf_types import FILE_TYPES
from phonate.engine.models.hub import HubOptions
from phonate.engine.models.model_files import ModelFiles
from phonate.engine.models.progress import Progress
from phonate.engine.models.resolve import DEFAULT_QUANT, OFFICIAL_IDS, QUANTS, resolve

PLAIN_STEP_PERCENT = 25
"""Without a terminal, a line whenever another quarter is done."""


def register(app: typer.Typer, dev: typer.Typer) -> None:
    """Add `pull` and `convert` to `app` and `make-model` to `dev`."""
    app.command("pull")(pull)
    app.command("convert")(convert)
    dev.command("make-model")(make_model_command)


def pull(
    model: Annotated[
        str, typer.Argument(help=f"{', '.join(OFFICIAL_IDS)}, or owner/repo:MODEL on the hub.")
    ] = "0.6b-base",
    quant: Annotated[str, typer.Option(help=", ".join(QUANTS))] = DEFAULT_QUANT,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit.")] = None,
    model_cache_dir: Annotated[Path | None, typer.Option(help="Default: the hub's own.")] = None,
    local_files_only: Annotated[
        bool, typer.Option("--local-files-only", help="Say where the files are; download nothing.")
    ] = False,
) -> None:
    """Download a model, so that serving it needs no network."""
    with shown_progress() as progress:
        resolved = resolve(
            model,
            quant=quant,
            revision=revision,
            hub=HubOptions(model_cache_dir, local_files_only),
            progress=progress,
        )
    _print_files(resolved.files)


def convert(
    checkpoint: Annotated[Path, typer.Argument(help="Folder with config.json and weights.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the two files.")],
    type_: Annotated[
        str, typer.Option("--type", help=", ".join(FILE_TYPES), show_default=True)
    ] = DEFAULT_QUANT,
    codec_type: Annotated[str | None, typer.Option(help="Default: the same as --type.")] = None,
) -> None:
    """Turn an official Qwen3-TTS checkpoint into the two GGUF files.

    P5 and P4 are the smallest that the native engine reads without requantising: 5.5-bit weights,
    in P4 4.5-bit ones in the code predictor. P4 holds what --precision fast makes while loading.
    """
    with shown_progress() as progress:
        files = convert_checkpoint(checkpoint, out, type_, codec_kind=codec_type, progress=progress)
    _print_files(files)


def make_model_command(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for everything.")],
    kind: Annotated[str, typer.Option(help=", ".join(KINDS))] = "base",
    size: Annotated[str, typer.Option(help=", ".join(TALKER_SIZES))] = "tiny",
    type_: Annotated[str, typer.Option("--type", help=", ".join(FILE_TYPES))] = "F32",
    codec: Annotated[
        str | None, typer.Option(help=f"Codec size: {', '.join(CODEC_SIZES)}.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same bytes.")] = 0,
    eos_gain: Annotated[
        float, typer.Option(help="Above 1 speech ends by itself: about 1.8.")
    ] = 1.0,
) -> None:
    """Make a random model of the right architecture: nonsense, but it loads, streams and clones."""
    recipe = Recipe(kind=kind, size=size, codec=codec, seed=seed, eos_gain=eos_gain)
    with shown_progress() as progress:
        files = make_model(recipe, out, type_, progress=progress)
    _print_files(files)


def _print_files(files: ModelFiles) -> None:
    typer.echo(f"--talker {files.talker}\n--codec {files.codec}")


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Bars on a terminal, else a line per quarter; both on stderr."""
    if not sys.stderr.isatty():
        yield _PlainLines()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Bars(*columns, console=Console(stderr=True)) as bars:

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total or None)
            bars.update(tasks[what], completed=done, total=total or None)

        yield tell


class _PlainLines:
    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        percent = done * 100 // total if total else 0
        step = percent // PLAIN_STEP_PERCENT
        if step > self._last.get(what, -1):
            self._last[what] = step
            typer.echo(f"{what}: {percent} %", err=True)
