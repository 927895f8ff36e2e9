"""Exceptions become OpenAI's error envelope here, for every route, and every answer gets an id.

    {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}   + X-Request-ID

`RequestContext` is plain ASGI and stands outside everything else, so that a 404, a 405 and a crash
of our own look the same to a client as a wrong field.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from phonate.api.traffic import OVER_CAPACITY, Traffic
from phonate.errors import (
    InternalError,
    InvalidRequest,
    NotFound,
    PhonateError,
    TooLarge,
    Unauthorized,
)
from phonate.logs import begin_request
from phonate.speech.fields import complaint

log = logging.getLogger("phonate.access")

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def error_body(error: PhonateError) -> dict[str, Any]:
    return {
        "error": {
            "message": error.message,
            "type": error.type,
            "param": error.param,
            "code": error.code,
        }
    }


def error_response(error: PhonateError) -> Response:
    headers = {}
    retry_after = getattr(error, "retry_after_s", None)
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(error_body(error), status_code=error.status, headers=headers)


def _from_validation(errors: Sequence[Any]) -> InvalidRequest:
    """The first complaint, as one sentence about one field."""
    first = dict(errors[0])
    if first["type"] == "json_invalid":
        return InvalidRequest("The body is not valid JSON.", code="invalid_json")
    first["loc"] = tuple(part for part in first["loc"] if part not in ("body", "query", "path"))
    return complaint(first)


class _MethodNotAllowed(PhonateError):
    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"


def _from_http(error: HTTPException) -> PhonateError:
    if isinstance(error.__cause__, PhonateError):  # FastAPI wraps what reading the body raised.
        return error.__cause__
    if error.status_code == 404:
        return NotFound("There is nothing at this address. GET /v1/capabilities lists the routes.")
    if error.status_code == 405:
        return _MethodNotAllowed("This address does not take that method.")
    if error.status_code == 413:
        return TooLarge(str(error.detail))
    return InvalidRequest(str(error.detail))


def install(app: FastAPI, routers: Sequence[APIRouter] = ()) -> None:
    """Register the translations; `routers` are those of the app. `RequestContext` is added by the
    app, outermost."""
    routes = [route for router in routers for route in router.routes]

    @app.exception_handler(PhonateError)
    async def _ours(request: Request, error: PhonateError) -> Response:
        return error_response(error)

    @app.exception_handler(RequestValidationError)
    async def _validation(request: Request, error: RequestValidationError) -> Response:
        return error_response(_from_validation(error.errors()))

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        answer = error_response(_from_http(error))
        answer.headers.update(error.headers or {})
        if error.status_code == 405:
            answer.headers["Allow"] = ", ".join(_allowed(request, routes))
        return answer


def _allowed(request: Request, routes: Sequence[BaseRoute]) -> list[str]:
    """Every method of the address. The router's own Allow stops at the first route that fits."""
    methods: set[str] = set()
    for route in (*routes, *request.app.routes):
        if route.matches(request.scope)[0] is not Match.NONE:
            methods |= getattr(route, "methods", None) or set()
    return sorted(methods)


class RequestContext:
    """Gives every request its id, logs it, and turns an unexpected exception into a 500.

    An exception after the first byte is let through: the server then breaks the connection, so
    that a client sees a truncated transfer instead of a clean short one.
    """

    def __init__(self, app: ASGIApp, traffic: Traffic) -> None:
        self._app = app
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        begin_request(request_id)
        started = time.monotonic()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                status = message["status"]
                self._traffic.answers[status] += 1
                headers = [*message.get("headers", []), (b"x-request-id", request_id.encode())]
                if self._traffic.draining or scope["state"].get(OVER_CAPACITY):
                    headers.append((b"connection", b"close"))
                message["headers"] = headers
            elif message["type"] == "http.response.body":
                self._traffic.sent_bytes["http"] += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception:
            if status or scope["type"] != "http":
                raise
            log.exception("request %s failed", request_id)
            crash = InternalError(request_id)
            await error_response(crash)(scope, receive, send_with_id)
        finally:
            _log(scope, request_id, status, (time.monotonic() - started) * 1000)


def _log(scope: Scope, request_id: str, status: int, milliseconds: float) -> None:
    # The path is the client's to choose: line ends and control characters stay out of the log.
    path = scope["path"].encode("unicode_escape").decode("ascii")
    method = scope.get("method", "WS")
    fields = {
        "request_id": request_id,
        "method": method,
        "path": path,
        "status": status or None,
        "ms": round(milliseconds, 1),
        "key": scope["state"].get("key") or None,
        "client": client[0] if (client := scope.get("client")) else None,
    }
    log.info(
        "%s %s %s %s %.1f ms", request_id, method, path, status or "-", milliseconds, extra=fields
    )


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            text = value.decode("latin-1")
            if is_request_id(text):
                return str(text)
    return "req_" + uuid.uuid4().hex


def is_request_id(text: str) -> bool:
    """Whether a client may name its request so."""
    return _REQUEST_ID.fullmatch(text) is not None
