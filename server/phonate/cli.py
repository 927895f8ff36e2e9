"""argv -> Settings -> a command. Exit codes: 0 fine, 1 failed, 2 wrong use."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from phonate import __version__, cli_models, cli_stream, settings
from phonate.cli_voices import voices
from phonate.errors import PhonateError
from phonate.settings import Loaded, Settings

cli = typer.Typer(
    name="phonate",
    help="A speech server: text in, voice out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

cli.add_typer(voices)

_CONFIG = inspect.Parameter(
    "config",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        Path | None, typer.Option(help="a TOML file with the same names", rich_help_panel="General")
    ],
)


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command every option of `settings` as a flag. It is called with the Loaded result
    in place of them."""
    hints = get_type_hints(command, include_extras=True)
    own = [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in list(inspect.signature(command).parameters.values())[1:]
    ]
    options = [_option_of(name) for name in Settings.model_fields]

    def run(**given: Any) -> None:
        arguments = {p.name: given.pop(p.name) for p in own}
        file = given.pop("config")
        command(settings.load(given, file=file), **arguments)

    run.__name__ = command.__name__
    run.__doc__ = command.__doc__
    parameters = [*own, _CONFIG, *options]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _option_of(name: str) -> inspect.Parameter:
    info = Settings.model_fields[name]
    kind = _flag_type(info.annotation)
    flag = settings.flag_name(name)
    names = [f"{flag}/--no-{flag[2:]}"] if kind is bool else [flag]
    names += map(settings.flag_name, settings.other_names(info))
    option = typer.Option(
        *names,
        help=f"{info.description}{_shown(info.get_default(call_default_factory=True))}",
        rich_help_panel=settings.group_of(info),
        metavar=None if kind is bool else _metavar(info.annotation),
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


def _flag_type(annotation: Any) -> Any:
    """What typer parses; the real check, with its range, is the settings model's."""
    if annotation is bool:
        return bool
    return list[str] if get_origin(annotation) is list else str


def _metavar(annotation: Any) -> str:
    if type_choices := [a for a in get_args(annotation) if isinstance(a, str)]:
        return "|".join(type_choices)
    return {int: "N", float: "X"}.get(annotation, "TEXT")


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        default = "on" if default else "off"
    return "" if default in (None, [], "") else f" (default {default})"


@cli.command()
@with_settings
def serve(loaded: Loaded) -> None:
    """Start the server."""
    from phonate.serve import serve as run

    run(loaded.settings)


@cli.command()
@with_settings
def say(
    loaded: Loaded,
    text: Annotated[str, typer.Argument(help="what to say; - reads standard input")],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="a file (its ending is the format) or - for stdout"),
    ],
    voice: Annotated[str | None, typer.Option(help="which voice")] = None,
    seed: Annotated[int | None, typer.Option(help="the same seed gives the same audio")] = None,
    speed: Annotated[float, typer.Option(help="0.25 to 4")] = 1.0,
) -> None:
    """Speak into a file, without a server."""
    from phonate.say import say as run

    run(loaded.settings, text, output, voice=voice, seed=seed, speed=speed)


@cli.command()
@with_settings
def bench(
    loaded: Loaded,
    frames: Annotated[int, typer.Option(help="frames of 80 ms per run")] = 64,
    runs: Annotated[int, typer.Option(help="measured runs of each engine, in turns")] = 5,
    random: Annotated[
        str, typer.Option(help="size of the random model made when none is named: 0.6b, 1.7b, tiny")
    ] = "0.6b",
    against: Annotated[
        list[str] | None,
        typer.Option(help="another engine in the same run: fast, exact, wheel, vox"),
    ] = None,
    busy: Annotated[
        int, typer.Option(help="speak again beside so many processes that compute all the time")
    ] = 0,
    vox_python: Annotated[
        str | None, typer.Option(help="interpreter that has vox-tts; default: this one")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="all figures into this file")] = None,
    picture: Annotated[Path | None, typer.Option(help="a picture (SVG) into this file")] = None,
) -> None:
    """Measure how fast this machine speaks, and how close that is to what it could do."""
    from phonate.bench import BenchOptions
    from phonate.bench import bench as run

    options = BenchOptions(
        frames, runs, random, tuple(against or ()), busy, vox_python, json, picture
    )
    run(loaded.settings, options)


@cli.command()
@with_settings
def doctor(
    loaded: Loaded,
    security: Annotated[
        bool, typer.Option("--security", help="look at keys, files, origins and the running server")
    ] = False,
) -> None:
    """Tell what is installed, which engine would run, and how to mend what is missing."""
    from phonate.doctor import doctor as run
    from phonate.doctor_security import doctor_security

    if not (doctor_security(loaded) if security else run(loaded.settings)):
        raise typer.Exit(1)


@cli.command()
@with_settings
def config(loaded: Loaded) -> None:
    """Print the effective options and where each comes from. Keys are masked."""
    for name, info in Settings.model_fields.items():
        value = getattr(loaded.settings, name)
        if settings.is_secret(info) and value:
            value = "***"
        typer.echo(f"{name} = {value!r}  # {loaded.origins[name]}")


dev = typer.Typer(help="For those who work on phonate.", no_args_is_help=True)
cli_models.register(cli, dev)
cli_stream.register(cli)
cli.add_typer(dev, name="dev")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"phonate {__version__}")
        raise typer.Exit


@cli.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="show the version")
    ] = False,
) -> None:
    pass


def main() -> None:
    """The `phonate` command: errors of our own are one line, not a traceback."""
    try:
        cli()
    except PhonateError as error:
        typer.echo(f"phonate: {error.message}", err=True)
        sys.exit(1)
