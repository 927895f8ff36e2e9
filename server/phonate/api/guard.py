"""The door: who may come in, from where, and with how much. Plain ASGI, before any route.

It stands before the routes because a framework reads a body before it asks its dependencies, and
nobody without a key should be able to make us read 32 MiB.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from phonate.api.envelope import error_response
from phonate.api.keys import Keys, presented
from phonate.errors import PhonateError, TooLarge, Unauthorized

OPEN = frozenset({"/", "/health", "/ready", "/v1/test", "/v1/capabilities"})
"""Never need a key: supervisors, and the page that asks for it."""

PAGE_FILES = "/page/"
"""What the page is made of; as open as the page."""

LISTINGS = re.compile(r"/v1/(audio/voices|models(/.*)?|audio/models)")
"""GET on these is open unless `--protect-listings`: Open WebUI lists before it has a key."""


class Forbidden(PhonateError):
    status = 403
    type = "permission_error"
    code = "forbidden"


@dataclass(frozen=True, slots=True)
class Policy:
    """What the door knows; from the options of the same names."""

    keys: Keys
    metrics_key: Keys | None = None
    """Opens /metrics and nothing else."""
    protect_listings: bool = False
    max_request_bytes: int = 32 * 2**20
    check_host: bool = True
    """Refuse a Host that is not loopback: a web page cannot then reach us by DNS rebinding."""
    origins: tuple[str, ...] = ()
    """Allowed `Origin`s besides loopback ones."""


def is_loopback(host: str) -> bool:
    """localhost, 127.x.y.z, ::1, with or without brackets."""
    name = host.strip("[]").lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def allows_origin(policy: Policy, origin: str) -> bool:
    """`null` (a file, a sandbox) is no origin that anybody allowed."""
    if origin in policy.origins:
        return True
    try:
        return not policy.origins and is_loopback(urlsplit(origin).hostname or "")
    except ValueError:
        return False


def is_own(origin: str, host: str | None) -> bool:
    """The page that this server sent. A name that somebody pointed at us (DNS rebinding) also looks
    like that, but either fails the Host check or needs a key. The scheme is the proxy's affair."""
    return origin.partition("://")[2].lower() == (host or "").lower() != ""


def path_of(scope: Scope) -> str:
    """The path as the routes see it: without --root-path, whether or not the proxy cut it off."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    if root and (path == root or path.startswith(root + "/")):
        return path[len(root) :] or "/"
    return path


class Guard:
    """See the module's text. What it lets through carries `scope["state"]["key"]`: the key's
    name, "" without keys."""

    def __init__(self, app: ASGIApp, policy: Policy) -> None:
        self._app = app
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            scope.setdefault("state", {})
            scope["state"]["key"] = self._admit(scope)
        except PhonateError as error:
            await refuse(error, scope, receive, send)
            return
        if scope["type"] == "http":
            receive = _Metered(receive, self._policy.max_request_bytes)
        await self._app(scope, receive, send)

    def _admit(self, scope: Scope) -> str:
        headers = HTTPConnection(scope).headers
        policy = self._policy
        # Browsers always send one; HTTP/1.0 clients need not. Behind a proxy, what it was asked for
        # and what it asks us for must both be loopback: api/forwarded.py.
        host = headers.get("host")
        hosts = (host, scope["state"].get("sent_host"))
        far = next((h for h in hosts if h is not None and not is_loopback(_host_name(h))), None)
        if policy.check_host and far is not None:
            raise Forbidden(
                f"The Host header {far!r} is not a loopback name. Without an "
                "API key this server answers only to localhost; set one with --api-key."
            )
        origin = headers.get("origin")
        if (
            scope["type"] == "websocket"
            and origin
            and not (is_own(origin, host) or allows_origin(policy, origin))
        ):
            raise Forbidden(f"The origin {origin!r} is not allowed. Allow it with --cors-origin.")
        declared = headers.get("content-length", "")
        if declared.isdigit() and int(declared) > policy.max_request_bytes:
            raise _too_large(policy.max_request_bytes)
        return self._owner(scope)

    def _owner(self, scope: Scope) -> str:
        policy = self._policy
        if not policy.keys.required:
            return ""
        owner = policy.keys.owner_of(presented(scope))
        if owner is not None:
            return owner
        path = path_of(scope)
        if path == "/metrics" and policy.metrics_key is not None:
            owner = policy.metrics_key.owner_of(presented(scope))
            if owner is not None:
                return owner
        if scope["type"] == "http" and (path in OPEN or path.startswith(PAGE_FILES)):
            return ""
        listing = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if listing and not policy.protect_listings and LISTINGS.fullmatch(path):
            return ""
        raise Unauthorized(
            "A valid API key is needed: send `Authorization: Bearer <key>`. "
            "The operator sets keys with --api-key or --api-key-file."
        )


class _Metered:
    """`receive` that counts the body, for clients that do not say its length or lie about it."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._seen = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._seen += len(message.get("body", b""))
            if self._seen > self._limit:
                raise _too_large(self._limit)
        return message


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The request body is larger than {limit} bytes (--max-request-bytes).")


def _host_name(host: str) -> str:
    """The name without the port; brackets of an IPv6 address stay."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


async def refuse(error: PhonateError, scope: Scope, receive: Receive, send: Send) -> None:
    """An HTTP answer, for a WebSocket one in place of the handshake."""
    response = error_response(error)
    if scope["type"] == "http":
        await response(scope, receive, send)
        return
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": error.message[:120]})
        return
    await send(
        {
            "type": "websocket.http.response.start",
            "status": error.status,
            "headers": response.raw_headers,
        }
    )
    await send({"type": "websocket.http.response.body", "body": response.body})
