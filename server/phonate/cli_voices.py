"""`phonate voices ...`: the options. What is done with them is in voice_commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phonate import settings
from phonate.voices.place import Place

voices = typer.Typer(
    name="voices",
    help="The registered voices: list, add, remove, carry elsewhere.",
    no_args_is_help=True,
)

Folder = Annotated[
    str | None,
    typer.Option(
        "--voice-dir", help="the voice folder, or s3://bucket/prefix [default: as 'serve' has it]"
    ),
]
Words = Annotated[str | None, typer.Option(help="words about the voice")]
Replace = Annotated[bool, typer.Option("--replace", help="in place of a voice of the same name")]


def _folder(given: str | None) -> Place:
    """What `phonate serve` would use with this option and this environment."""
    return settings.load({"voice_dir": given}).settings.voice_dir


@voices.command("list")
def list_voices(
    voice_dir: Folder = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object a line")] = False,
) -> None:
    """Show the voices, and on stderr what is in the folder and not served."""
    from phonate import voice_commands

    voice_commands.list_voices(_folder(voice_dir), as_json=as_json)


@voices.command()
def add(
    name: Annotated[str, typer.Argument(help="what the voice is called")],
    recording: Annotated[
        Path | None, typer.Argument(help="1 to 30 s of speech, in any usual audio format")
    ] = None,
    ref_text: Annotated[
        str | None, typer.Option(help="what the recording says; a closer clone with it")
    ] = None,
    language: Words = None,
    description: Words = None,
    consent: Annotated[str | None, typer.Option(help="where the consent is kept")] = None,
    spk: Annotated[Path | None, typer.Option(help="latents in place of a recording")] = None,
    rvq: Annotated[Path | None, typer.Option(help="goes with --spk")] = None,
    replace: Replace = False,
    voice_dir: Folder = None,
) -> None:
    """Register a voice."""
    from phonate import voice_commands

    words = {
        "name": name,
        "ref_text": ref_text,
        "language": language,
        "description": description,
        "consent": consent,
    }
    voice_commands.add(
        _folder(voice_dir), words, recording=recording, spk=spk, rvq=rvq, replace=replace
    )


@voices.command()
def remove(
    names: Annotated[list[str], typer.Argument(help="names or ids")], voice_dir: Folder = None
) -> None:
    """Remove voices for good, with everything made from them."""
    from phonate import voice_commands

    voice_commands.remove(_folder(voice_dir), names)


@voices.command("export")
def export_voices(
    file: Annotated[str, typer.Argument(help="where to; - is stdout")],
    names: Annotated[list[str] | None, typer.Argument(help="which [default: all]")] = None,
    voice_dir: Folder = None,
) -> None:
    """Write voices into one file, recordings, transcripts and consents included."""
    from phonate import voice_commands

    voice_commands.export_voices(_folder(voice_dir), file, names or [])


@voices.command("import")
def import_voices(
    source: Annotated[
        str,
        typer.Argument(help="an exported file, - for stdin, or a voice folder (RealtimeTTS's too)"),
    ],
    replace: Replace = False,
    voice_dir: Folder = None,
) -> None:
    """Take voices in, each checked like an upload. One that fails is told and the others go on."""
    from phonate import voice_commands

    if voice_commands.import_voices(_folder(voice_dir), source, replace=replace):
        raise typer.Exit(1)
