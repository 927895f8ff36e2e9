"""In front of Ray's own HTTP proxy: what Ray says itself looks like what phonate says.

Ray loads it where its processes were started with

    RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH=phonate.ray.edge:middlewares

    the replica died before its answer began   Ray: 500, text   here: 503 with Retry-After
    no such application, a timeout, a refusal  Ray: text        here: OpenAI's envelope
    the replica died in a WebSocket session    Ray: close 1000  here: close 1012
    an X-Request-ID that phonate would refuse  Ray: repeats it  here: Ray makes a new one
"""

from __future__ import annotations

import logging

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from phonate.api.envelope import error_response, is_request_id
from phonate.errors import NotFound, NotReady, PhonateError, Timeout
from phonate.speech.session_events import CloseCode

log = logging.getLogger("phonate.ray")

RETRY_AFTER_S = 1.0

_OF_RAY = "/-/"
"""Its own addresses, for load balancers: /-/healthz, /-/routes."""


def middlewares() -> list[Middleware]:
    return [Middleware(Edge)]


class Edge:
    """Plain ASGI, outside Ray's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._session(scope, receive, send)
        elif scope["type"] == "http" and not scope["path"].startswith(_OF_RAY):
            await self._request(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        _drop_bad_ids(scope)
        begun, gone, replaced = False, False, False

        async def see(message: Message) -> None:
            nonlocal begun, replaced
            if message["type"] == "http.response.start":
                begun = True
                if error := _of_ray(message):
                    replaced = True
                    await _answer(error, scope, receive, send)
            if not replaced:
                await send(message)

        async def listen() -> Message:
            nonlocal gone
            message = await receive()
            gone = gone or message["type"] == "http.disconnect"
            return message

        await self._app(scope, listen, see)
        if not begun and not gone:
            lost = NotReady("The replica that had this request is gone. Try again.")
            await _answer(lost, scope, receive, send)

    async def _session(self, scope: Scope, receive: Receive, send: Send) -> None:
        _drop_bad_ids(scope)
        accepted, over = False, False

        async def see(message: Message) -> None:
            nonlocal accepted, over
            accepted = accepted or message["type"] == "websocket.accept"
            over = over or message["type"] == "websocket.close"
            await send(message)

        async def listen() -> Message:
            nonlocal over
            message = await receive()
            over = over or message["type"] == "websocket.disconnect"
            return message

        await self._app(scope, listen, see)
        if accepted and not over:
            await send(
                {"type": "websocket.close", "code": CloseCode.RESTART, "reason": "replica_lost"}
            )


def _of_ray(start: Message) -> PhonateError | None:
    """What Ray means by an answer of its own; None for one of the app's, whose errors are JSON."""
    status = start["status"]
    kinds = [value for name, value in start.get("headers", []) if name.lower() == b"content-type"]
    if status < 400 or any(kind.startswith(b"application/json") for kind in kinds):
        return None
    if status == 404:
        return NotFound("There is no application at this address yet.")
    if status == 408:
        return Timeout("The answer took longer than Ray's request_timeout_s.")
    return NotReady("No replica can take this request now.", retry_after_s=RETRY_AFTER_S)


async def _answer(error: PhonateError, scope: Scope, receive: Receive, send: Send) -> None:
    response = error_response(error)
    for name, value in scope["headers"]:  # Ray has put one there by now.
        if name == b"x-request-id":
            response.headers["X-Request-ID"] = value.decode("latin-1")
    await response(scope, receive, send)


def _drop_bad_ids(scope: Scope) -> None:
    scope["headers"] = [
        (name, value)
        for name, value in scope["headers"]
        if name != b"x-request-id" or is_request_id(value.decode("latin-1"))
    ]
