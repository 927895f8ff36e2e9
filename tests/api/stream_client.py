"""A small client for tests: sends events, sorts what comes back."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import websockets
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

PATH = "/v1/audio/speech-stream"


class Client:
    """`out`: dicts and bytes in the order in which they came."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.out: list[Any] = []

    async def send(self, type_: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": type_, **fields}))

    async def get(self) -> Any:
        message = await self.socket.recv()
        frame = json.loads(message) if isinstance(message, str) else message
        self.out.append(frame)
        return frame

    async def until(self, *types: str) -> dict[str, Any]:
        """Read up to the next event of one of these types."""
        while True:
            frame = await self.get()
            if isinstance(frame, dict) and frame["type"] in types:
                return frame

    async def until_pcm(self, n: int = 1) -> None:
        while n:
            n -= isinstance(await self.get(), bytes)

    async def rest(self) -> tuple[int, str]:
        """Read until the server closes; its close code and reason."""
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                await self.get()
        return self.socket.close_code or 0, self.socket.close_reason or ""

    @property
    def events(self) -> list[dict[str, Any]]:
        return [o for o in self.out if isinstance(o, dict)]

    @property
    def types(self) -> list[str]:
        names: list[str] = []
        for o in self.out:
            name = o["type"] if isinstance(o, dict) else "pcm"
            if name != "pcm" or names[-1:] != ["pcm"]:
                names.append(name)
        return names

    @property
    def pcm(self) -> bytes:
        return b"".join(o for o in self.out if isinstance(o, bytes))

    def of(self, type_: str) -> list[dict[str, Any]]:
        return [e for e in self.events if e["type"] == type_]


@contextlib.asynccontextmanager
async def session(
    server: Any,
    *,
    config: dict[str, Any] | None = None,
    path: str = PATH,
    query: str = "",
    headers: dict[str, str] | None = None,
    subprotocols: list[str] | None = None,
    make: Callable[[ClientConnection], Client] = Client,
    **options: Any,
) -> AsyncIterator[Client]:
    """A connection; with `config` also the config event and its `ready`."""
    address = server.address.replace("http:", "ws:") + path + query
    offered = [Subprotocol(name) for name in subprotocols or []]
    async with connect(
        address, additional_headers=headers, subprotocols=offered or None, proxy=None, **options
    ) as socket:
        client = make(socket)
        if config is not None:
            await client.send("config", **config)
            await client.until("ready")
            client.out.clear()
        yield client
