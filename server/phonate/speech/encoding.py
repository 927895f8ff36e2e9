"""Making a voice's latents when it is the engine's turn for it.

Encoding a reference keeps the engine busy like an utterance does, so it stands in the same queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from phonate.engine.base import Reference, Samples
from phonate.speech.service import SpeechService

QUEUE_KEY = "voices"
"""All encodings together take turns like one client."""


def encode_in_turn(
    service: SpeechService, loop: asyncio.AbstractEventLoop
) -> Callable[[Samples, str | None], Reference]:
    """What `voices.references.Encoder` calls, from a worker thread that holds no slot: with the
    only slot in hand it would wait for itself. Raises what `SpeechService.extract_voice` raises."""

    def encode(audio: Samples, text: str | None) -> Reference:
        encoding = service.extract_voice(audio, text, QUEUE_KEY)
        return asyncio.run_coroutine_threadsafe(encoding, loop).result()

    return encode
