"""HEAD for every address that GET has: health checks and link checkers ask that way.

The server below sends no body to a HEAD, whatever comes from here, but keeps its length.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class HeadAsGet:
    """Innermost, so that the door and the log still see what was asked. Plain ASGI."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            # A copy: the server below goes by its own scope when it drops the body.
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)
