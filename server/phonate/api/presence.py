"""Notice that a client has left while something is being made for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from starlette.types import Receive


@contextlib.asynccontextmanager
async def when_gone(receive: Receive, call: Callable[[], None]) -> AsyncIterator[None]:
    """Calls `call` once if the client disconnects inside the block. The body has been read."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        call()

    task = asyncio.ensure_future(watch())
    try:
        yield
    finally:
        task.cancel()
