"""What the routes of voices and consents need. `app.create_app` opens one and closes it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, ParamSpec, TypeVar

from fastapi import Depends
from starlette.requests import HTTPConnection

from phonate.engine.base import EngineInfo, Reference, Samples
from phonate.voices.consents import ConsentStore
from phonate.voices.library import VoiceLibrary
from phonate.voices.place import Place, below
from phonate.voices.references import Encoder
from phonate.voices.starters import StarterVoices
from phonate.voices.store import MAX_VOICES, VoiceStore

P = ParamSpec("P")
R = TypeVar("R")

N_WORKERS = 32
"""More than wait for the engine by default (the queue refuses the tenth), so that looking up a
voice never waits behind uploads."""


@dataclass(frozen=True, slots=True)
class VoiceDesk:
    library: VoiceLibrary
    consents: ConsentStore
    executor: Executor
    """Where the disk and the decoders work: never on the loop, and not on its common threads,
    which an upload that waits for the engine would keep from others."""

    async def do(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Await a blocking call on one of our threads."""
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()  # A log line there belongs to the request too.
        return await loop.run_in_executor(
            self.executor, partial(context.run, partial(call, *args, **kwargs))
        )


@contextlib.contextmanager
def open_desk(
    voice_dir: Place,
    info: EngineInfo,
    encode: Callable[[Samples, str | None], Reference],
    *,
    max_voices: int = MAX_VOICES,
    starters: Path | None = None,
) -> Iterator[VoiceDesk]:
    """Raises SetupError for a place that cannot be used. `encode` waits for its turn by itself
    (speech.encoding)."""
    store = VoiceStore(voice_dir, max_voices=max_voices)
    consents = ConsentStore(below(voice_dir, "consents"))
    library = VoiceLibrary(
        store,
        model=info.model,
        encoder=Encoder.of(info, encode),
        starters=StarterVoices(starters) if starters else None,
        built_in=info.speakers,
    )
    executor = ThreadPoolExecutor(N_WORKERS, "phonate-voices")
    try:
        with store.following(), consents.following():
            yield VoiceDesk(library, consents, executor)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


async def _desk(connection: HTTPConnection) -> VoiceDesk:
    desk: VoiceDesk = connection.app.state.voice_desk
    return desk


Desk = Annotated[VoiceDesk, Depends(_desk)]
