"""`phonate serve`: a socket, an engine, and uvicorn around the app."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Iterator
from typing import Any

import uvicorn

from phonate import logs
from phonate.app import create_app
from phonate.cli_models import shown_progress
from phonate.engine.choose import create_engine
from phonate.listen import address_of, listening
from phonate.notify import Notifier
from phonate.settings import Settings
from phonate.supervised import Supervised

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may keep the interpreter while others want it. At Python's 5 ms, a chunk on its
way from the engine's thread over the loop to the socket waits that long at every step."""


def serve(settings: Settings) -> None:
    """Run until a signal ends it. Raises SetupError before the socket opens."""
    logs.set_up(settings.log_level, settings.log_format)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    notifier = Notifier.from_environment()
    with listening(settings.host, settings.port, settings.uds, settings.uds_mode) as sock:
        notifier.status("Loading the voice")
        with shown_progress() as progress:
            engine = create_engine(settings, progress)
        app = create_app(settings, engine)
        server = Server(uvicorn_config(app, settings), address_of(sock), supervised(app, notifier))
        asyncio.run(server.serve(sockets=[sock]))
    if not server.started:
        sys.exit(1)


def supervised(app: Any, notifier: Notifier) -> Supervised:
    """Asks the app's state, which exists once the app has started."""
    return Supervised(
        notifier,
        healthy=lambda: app.state.phonate.service.health().ok,
        reload=lambda: app.state.phonate.reload(),  # noqa: PLW0108 - not there yet
    )


def uvicorn_config(app: object, settings: Settings) -> uvicorn.Config:
    logs.keep_secrets()
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
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
        timeout_graceful_shutdown=round(settings.shutdown_timeout) + 5,
    )


class Server(uvicorn.Server):
    """Says where it listens once it really does, to people and to the service manager."""

    def __init__(self, config: uvicorn.Config, address: str, supervised: Supervised) -> None:
        super().__init__(config)
        self._address = address
        self._supervised = supervised

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn would raise the signal once more after a clean end, and so kill the process
        before it has put its things away."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._supervised.started(f"Listening on {self._address}")
            print(_greeting(self._address), flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
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
