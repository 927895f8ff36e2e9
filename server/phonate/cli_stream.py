"""The flags of `phonate stream`; what it does is in `stream_client`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def register(cli: typer.Typer) -> None:
    cli.command("stream")(stream)


def stream(
    url: Annotated[str, typer.Option(help="the server")] = "http://127.0.0.1:8080",
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="a .wav or .pcm file, or - for raw PCM on standard output; without it, a player",
        ),
    ] = None,
    voice: Annotated[str | None, typer.Option(help="which voice")] = None,
    language: Annotated[str | None, typer.Option(help="name, code or auto")] = None,
    instructions: Annotated[str | None, typer.Option(help="how to say it")] = None,
    speed: Annotated[float | None, typer.Option(help="0.25 to 4")] = None,
    seed: Annotated[int | None, typer.Option(help="the same seed gives the same audio")] = None,
    lookahead_words: Annotated[
        int | None, typer.Option(help="words to wait for a sentence end at the beginning")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(help="or PHONATE_API_KEY", show_default=False)
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="no times on stderr")] = False,
) -> None:
    """Speak standard input through a running server, as it comes."""
    from phonate.stream_client import StreamOptions
    from phonate.stream_client import stream as run

    config = {
        "voice": voice,
        "language": language,
        "instructions": instructions,
        "speed": speed,
        "seed": seed,
        "fragment_lookahead_words": lookahead_words,
    }
    options = StreamOptions(
        config={name: value for name, value in config.items() if value is not None},
        key=api_key or os.environ.get("PHONATE_API_KEY"),
        flush_lines=sys.stdin.isatty(),
    )
    run(url, output, options, quiet=quiet)
