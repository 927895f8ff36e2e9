"""`phonate serve`: a socket, an engine, and uvicorn around the app."""

from __future__ import annotations

import asyncio
import socket
import sys

import uvicorn

from phonate import logs
from phonate.app import create_app
from phonate.cli_models import shown_progress
from phonate.engine.choose import create_engine
from phonate.errors import SetupError
from phonate.settings import Settings

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may keep the interpreter while others want it. At Python's 5 ms, a chunk on its
way from the engine's thread over the loop to the socket waits that long at every step."""


def serve(settings: Settings) -> None:
    """Run until a signal ends it. Raises SetupError before the socket opens."""
    logs.set_up(settings.log_level, settings.log_format)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    sock = bind(settings.host, settings.port)
    with shown_progress() as progress:
        engine = create_engine(settings, progress)
    app = create_app(settings, engine)
    host, port = sock.getsockname()[:2]
    server = _Server(uvicorn_config(app, settings), f"http://{_bracketed(host)}:{port}")
    asyncio.run(server.serve(sockets=[sock]))
    if not server.started:
        sys.exit(1)


def uvicorn_config(app: object, settings: Settings) -> uvicorn.Config:
    logs.keep_secrets()
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        log_config=None,
        access_log=False,
        server_header=False,
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        # Pings keep proxies from closing quiet connections, but a late pong is no offence: a
        # client that reads slowly has a minute of audio in front of the ping.
        ws_ping_timeout=None,
        timeout_graceful_shutdown=round(settings.shutdown_timeout) + 5,
    )


class _Server(uvicorn.Server):
    """Says where it listens once it really does."""

    def __init__(self, config: uvicorn.Config, address: str) -> None:
        super().__init__(config)
        self._address = address

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(_greeting(self._address), flush=True)


def _greeting(address: str) -> str:
    return (
        f"phonate listens on {address}\n"
        f"Open it in a browser, or try: curl {address}/v1/audio/speech "
        """-H 'Content-Type: application/json' -d '{"input":"Hello there!"}' -o hello.mp3"""
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
