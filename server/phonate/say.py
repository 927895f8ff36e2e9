"""`phonate say`: the same journey as a request, without a server."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import BinaryIO

import numpy as np

from phonate.api.voice_choice import voice_for
from phonate.app import limits_of, open_voices, sound_of
from phonate.audio.encoders import FORMATS, Format, find_format
from phonate.engine.choose import create_engine
from phonate.errors import SetupError
from phonate.settings import Settings
from phonate.speech.encoding import encode_in_turn
from phonate.speech.request import SpeechRequest
from phonate.speech.service import SpeechService

STDOUT = Path("-")


def say(
    settings: Settings,
    text: str,
    output: Path,
    *,
    voice: str | None,
    seed: int | None,
    speed: float,
) -> None:
    """Speak `text` ("-": standard input) into `output` ("-": standard output, as WAV)."""
    format_ = _format_of(output)
    if text == "-":
        text = sys.stdin.read()
    if not text.strip():
        raise SetupError("There is nothing to say: the text is blank.")
    if not 0.25 <= speed <= 4:
        raise SetupError(f"--speed {speed:g}: allowed are 0.25 to 4.")
    asyncio.run(_say(settings, text, output, format_, voice, seed, speed))


def _format_of(output: Path) -> Format:
    name = "wav" if output == STDOUT else output.suffix.lstrip(".")
    format_ = find_format(name)
    if format_ is None:
        raise SetupError(f"-o {output}: the ending says which format, one of {', '.join(FORMATS)}.")
    return format_


async def _say(
    settings: Settings,
    text: str,
    output: Path,
    format_: Format,
    voice: str | None,
    seed: int | None,
    speed: float,
) -> None:
    engine = create_engine(settings)
    service = SpeechService(engine, limits_of(settings), sound_of(settings))
    encode = encode_in_turn(service, asyncio.get_running_loop())
    try:
        with open_voices(settings, engine.info, encode) as voices:
            await service.start()
            language = voices.routing.explicit(None)
            chosen = await voice_for(voices, text, voice, language, settings.clone_mode)
            request = SpeechRequest(
                text=text,
                voice=chosen.id,
                speaker=chosen.speaker,
                reference=chosen.reference,
                language=chosen.language,
                seed=seed,
                speed=speed,
                clone_mode=settings.clone_mode,
                whole=True,
            )
            blocks = [block async for block in service.speak(request).blocks()]
    finally:
        await service.close()
    audio = format_.encode(np.concatenate(blocks), request.sample_rate)
    with _open(output) as stream:
        stream.write(audio)


def _open(output: Path) -> contextlib.AbstractContextManager[BinaryIO]:
    if output == STDOUT:
        return contextlib.nullcontext(sys.stdout.buffer)
    try:
        return output.open("wb")
    except OSError as error:
        raise SetupError(f"-o {output}: cannot be written ({error.strerror}).") from None
