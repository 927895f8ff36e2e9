"""`phonate serve`: a socket, an engine, and uvicorn around the app."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from functools import partial
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from phonate import logs
from phonate.api.drain import Drain
from phonate.api.guard import MAX_HEAD_BYTES
from phonate.api.wire import SPARE, WireProtocol, raise_file_limit, wire_limits_of
from phonate.app import create_app
from phonate.cli_models import shown_progress
from phonate.engine.choose import create_engine
from phonate.errors import SetupError
from phonate.settings import Settings

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may keep the interpreter while others want it. At Python's 5 ms, a chunk on its
way from the engine's thread over the loop to the socket waits that long at every step."""

OTHER_FILES = 256
"""Files that are no connections: models, voices, libraries, pipes."""


def serve(settings: Settings) -> None:
    """Run until a signal ends it. Raises SetupError before the socket opens."""
    logs.set_up(settings.log_level, settings.log_format)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    raise_file_limit(settings.max_connections + SPARE + OTHER_FILES)
    sock = bind(settings.host, settings.port)
    with shown_progress() as progress:
        engine = create_engine(settings, progress)
    app = create_app(settings, engine)
    host, port = sock.getsockname()[:2]
    server = Server(uvicorn_config(app, settings), app, f"http://{_bracketed(host)}:{port}")
    try:
        asyncio.run(server.serve(sockets=[sock]))
    except SystemExit:
        if isinstance(error := getattr(app.state, "start_error", None), SetupError):
            raise error from None
        raise
    if not server.started:
        sys.exit(1)


def uvicorn_config(app: Starlette, settings: Settings) -> uvicorn.Config:
    logs.keep_secrets()
    protocol = partial(WireProtocol, limits=wire_limits_of(settings), traffic=app.state.traffic)
    return uvicorn.Config(
        app,
        http=protocol,  # type: ignore[arg-type]
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        timeout_keep_alive=settings.keep_alive_timeout,  # type: ignore[arg-type]
        log_config=None,
        access_log=False,
        server_header=False,
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        # Pings keep proxies from closing quiet connections, but a late pong is no offence: a
        # client that reads slowly has a minute of audio in front of the ping.
        ws_ping_timeout=None,
        timeout_graceful_shutdown=FLUSH_S,  # type: ignore[arg-type]
    )


FLUSH_S = 5.0
"""For answers that are made but not all read, once the drain is over."""


class Server(uvicorn.Server):
    """Says where it listens once it really does. The first signal drains (`api.drain`), during
    which the door stays open to say 503; the second ends the process where it stands."""

    def __init__(self, config: uvicorn.Config, app: Starlette, address: str) -> None:
        super().__init__(config)
        self._app = app
        self._address = address
        self._signalled = False
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            print(_greeting(self._address), flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # No log lines here: the interrupted code may be in the middle of one.
        if self._signalled or not self.started:
            os.write(2, b"phonate: ended by a signal\n")
            os._exit(128 + sig)
        self._signalled = True
        self._loop.call_soon_threadsafe(self._begin_drain)

    def _begin_drain(self) -> None:
        drain = Drain(self._app.state.phonate)
        drain.begin()
        self._draining = asyncio.ensure_future(self._drain(drain))

    async def _drain(self, drain: Drain) -> None:
        try:
            await drain.finish()
        finally:
            self.should_exit = True


def _greeting(address: str) -> str:
    return (
        f"phonate listens on {address}\n"
        f"Try: curl {address}/v1/audio/speech -H 'Content-Type: application/json' "
        """-d '{"input":"Hello there!"}' -o hello.mp3"""
    )


def bind(host: str, port: int) -> socket.socket:
    """A socket to listen on. Raises SetupError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sets TCP_NODELAY only where it is: without that, the
    # first audio waits up to 40 ms behind the headers for the client's delayed ACK.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except (OSError, OverflowError) as error:
        sock.close()
        raise SetupError(
            f"--host {host} --port {port}: cannot listen there ({error}). "
            "Choose another with --port, or --port 0 for a free one."
        ) from None
    return sock


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
