"""`phonate serve`: a socket, an engine, and uvicorn around the app."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from functools import partial
from types import FrameType
from typing import Any

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
from phonate.listen import address_of, listening
from phonate.notify import Notifier
from phonate.settings import Settings
from phonate.supervised import Supervised

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may keep the interpreter while others want it. At Python's 5 ms, a chunk on its
way from the engine's thread over the loop to the socket waits that long at every step."""

OTHER_FILES = 256
"""Files that are no connections: models, voices, libraries, pipes."""


def serve(settings: Settings) -> None:
    """Run until a signal ends it. Raises SetupError before the socket opens."""
    logs.set_up(settings.log_level, settings.log_format)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    notifier = Notifier.from_environment()
    raise_file_limit(settings.max_connections + SPARE + OTHER_FILES)
    with listening(settings.host, settings.port, settings.uds, settings.uds_mode) as sock:
        notifier.status("Loading the voice")
        with shown_progress() as progress:
            engine = create_engine(settings, progress)
        app = create_app(settings, engine)
        server = Server(
            uvicorn_config(app, settings), app, address_of(sock), supervised(app, notifier)
        )
        try:
            asyncio.run(server.serve(sockets=[sock]))
        except SystemExit:
            if isinstance(error := getattr(app.state, "start_error", None), SetupError):
                raise error from None
            raise
    if not server.started:
        sys.exit(1)


def supervised(app: Any, notifier: Notifier) -> Supervised:
    """Asks the app's state, which exists once the app has started."""
    return Supervised(
        notifier,
        healthy=lambda: app.state.phonate.service.health().ok,
        reload=lambda: app.state.phonate.reload(),  # noqa: PLW0108 - not there yet
    )


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
        # Its default believes whoever connects from 127.0.0.1; api/forwarded.py asks the operator.
        proxy_headers=False,
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
    """Says where it listens once it really does, to people and to the service manager. The first
    signal drains (`api.drain`), during which the door stays open to say 503; the second ends the
    process where it stands."""

    def __init__(
        self, config: uvicorn.Config, app: Starlette, address: str, supervised: Supervised
    ) -> None:
        super().__init__(config)
        self._app = app
        self._address = address
        self._supervised = supervised
        self._signalled = False
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            self._supervised.started(f"Listening on {self._address}")
            print(_greeting(self._address), flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # No log lines here: the interrupted code may be in the middle of one.
        if self._signalled or not self.started:
            os.write(2, b"phonate: ended by a signal\n")
            os._exit(128 + sig)
        self._signalled = True
        self._loop.call_soon_threadsafe(self._begin_drain)

    def _begin_drain(self) -> None:
        self._supervised.stopping()
        drain = Drain(self._app.state.phonate)
        drain.begin()
        self._draining = asyncio.ensure_future(self._drain(drain))

    async def _drain(self, drain: Drain) -> None:
        try:
            await drain.finish()
        finally:
            self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if not self._signalled:
            self._supervised.stopping()
        await super().shutdown(sockets)
        self._supervised.ended()


def _greeting(address: str) -> str:
    where, how = address, "Open it in a browser, or try"
    if address.startswith("unix:"):
        where, how = f"--unix-socket {address.removeprefix('unix:')} http://localhost", "Try"
    return (
        f"phonate listens on {address}\n"
        f"{how}: curl {where}/v1/audio/speech "
        """-H 'Content-Type: application/json' -d '{"input":"Hello there!"}' -o hello.mp3"""
    )
