"""The door: who may come in, from where, and with how much. Plain ASGI, before any route.

It stands before the routes because a framework reads a body before it asks its dependencies, and
nobody without a key should be able to make us read 32 MiB.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from phonate.api.envelope import error_response
from phonate.api.keys import Keys, presented
from phonate.api.rates import Buckets, client_name
from phonate.api.traffic import OVER_CAPACITY, Traffic
from phonate.errors import (
    Busy,
    HeadTooLarge,
    NotReady,
    PhonateError,
    RateLimited,
    RequestTimeout,
    TooLarge,
    Unauthorized,
    UnsupportedMedia,
)

OPEN = frozenset({"/", "/health", "/ready", "/v1/test", "/v1/capabilities"})
"""Never need a key: supervisors, and the page that asks for it."""

PAGE_FILES = "/page/"
"""What the page is made of; as open as the page."""

LISTINGS = re.compile(r"/v1/(audio/voices|models(/.*)?|audio/models)")
"""GET on these is open unless `--protect-listings`: Open WebUI lists before it has a key."""


MAX_HEADERS = 100
MAX_HEAD_LINE = 8000
"""Bytes. The WebSocket library takes 8,192 and 128 headers, and drops the connection beyond."""
MAX_HEAD_BYTES = 16 * 2**10

BODIES_AT_ONCE = 8
"""So many of the largest request bodies may be in memory together; further ones are answered 503.
Without it, as many clients as may connect could send one each."""


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
    body_timeout_s: float = 60.0
    rates: Buckets | None = None
    """None: no limit."""
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


def head_problem(scope: Scope) -> str | None:
    """Why the head of a request is too large, None when it is not."""
    headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
    target = len(scope.get("raw_path") or b"") + len(scope.get("query_string", b""))
    sizes = [len(name) + len(value) + 4 for name, value in headers]
    if len(headers) > MAX_HEADERS:
        return f"{len(headers)} headers; at most {MAX_HEADERS} are taken."
    if max([*sizes, target]) > MAX_HEAD_LINE:
        return f"a line of more than {MAX_HEAD_LINE} bytes."
    if sum(sizes) + target > MAX_HEAD_BYTES:
        return f"more than {MAX_HEAD_BYTES} bytes."
    return None


class Guard:
    """See the module's text. What it lets through carries `scope["state"]["key"]`, the key's
    name, "" without keys; and `["client"]`, whom limits count for."""

    def __init__(self, app: ASGIApp, policy: Policy, traffic: Traffic) -> None:
        self._app = app
        self._policy = policy
        self._traffic = traffic
        self._bodies = _Budget(BODIES_AT_ONCE * policy.max_request_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        try:
            self._check_capacity(scope)
            owner = state["key"] = self._admit(scope)
            client = state["client"] = client_name(owner, scope.get("client"))
            send = self._charge(client, scope, send)
        except PhonateError as error:
            await refuse(error, scope, receive, send)
            return
        except _Limited as limited:
            self._traffic.refused["rate_limit"] += 1
            await refuse(limited.error, scope, receive, limited.send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Metered(receive, self._policy, self._bodies)
        try:
            await self._app(scope, body, send)
        finally:
            body.release()

    def _check_capacity(self, scope: Scope) -> None:
        """Health and reads go on; see `wire` for connections beyond the number."""
        reading = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if scope["state"].get(OVER_CAPACITY) and not (reading and path_of(scope) in OPEN):
            self._traffic.refused["full"] += 1
            raise Busy("All connections (--max-connections) are taken. Try again later.")
        if self._traffic.draining and not reading:
            self._traffic.refused["draining"] += 1
            raise NotReady("The server is shutting down.", retry_after_s=5)

    def _charge(self, client: str, scope: Scope, send: Send) -> Send:
        """Count the request, where it is one that counts; `send` then tells the client how it
        stands."""
        rates = self._policy.rates
        if rates is None or _is_open(scope) or path_of(scope) == "/metrics":
            return send
        allowance = rates.take(client)
        telling = _telling(send, allowance.headers())
        if allowance.granted:
            return telling
        raise _Limited(
            telling,
            RateLimited(
                f"{allowance.limit} requests a minute are allowed (--max-requests-per-minute). "
                f"Wait {allowance.wait_s:.1f} s.",
                retry_after_s=allowance.wait_s,
            ),
        )

    def _admit(self, scope: Scope) -> str:
        headers = HTTPConnection(scope).headers
        policy = self._policy
        if problem := head_problem(scope):
            self._traffic.refused["head_too_large"] += 1
            raise HeadTooLarge(f"The head of the request has {problem}")
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
        owner = self._owner(scope)
        coding = headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("", "identity"):
            raise UnsupportedMedia(
                f"Content-Encoding {coding[:40]!r}: send the body as it is, not compressed.",
                param="Content-Encoding",
            )
        declared = headers.get("content-length", "")
        if declared.isdigit() and int(declared) > policy.max_request_bytes:
            raise _too_large(policy.max_request_bytes)
        return owner

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
        if _is_open(scope) and not policy.protect_listings:
            return ""
        raise Unauthorized(
            "A valid API key is needed: send `Authorization: Bearer <key>`. "
            "The operator sets keys with --api-key or --api-key-file."
        )


def _is_open(scope: Scope) -> bool:
    """Needs no key, unless listings are protected; costs nothing."""
    if scope["type"] != "http":
        return False
    path = path_of(scope)
    listing = scope["method"] in ("GET", "HEAD") and LISTINGS.fullmatch(path)
    return bool(listing) or path in OPEN or path.startswith(PAGE_FILES)


class _Limited(Exception):
    """A request too many, and the `send` that adds the headers about it."""

    def __init__(self, send: Send, error: RateLimited) -> None:
        super().__init__()
        self.send = send
        self.error = error


def _telling(send: Send, headers: list[tuple[bytes, bytes]]) -> Send:
    starts = ("http.response.start", "websocket.http.response.start", "websocket.accept")

    async def tell(message: Message) -> None:
        if message["type"] in starts:
            message["headers"] = [*message.get("headers", []), *headers]
        await send(message)

    return tell


class _Budget:
    """Bytes that all request bodies together may hold."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0

    def take(self, n: int) -> None:
        self._used += n
        if self._used > self._limit:
            raise Busy("Too many large requests are being received. Try again later.")

    def release(self, n: int) -> None:
        self._used -= n


class _Metered:
    """`receive` that counts the body, for clients that do not say its length or lie about it, and
    looks at the clock, for those that send it a byte at a time."""

    def __init__(self, receive: Receive, policy: Policy, budget: _Budget) -> None:
        self._receive = receive
        self._policy = policy
        self._budget = budget
        self._deadline = time.monotonic() + policy.body_timeout_s
        self._complete = False
        self._seen = 0

    async def __call__(self) -> Message:
        message = await (self._receive() if self._complete else self._receive_in_time())
        if message["type"] == "http.request":
            n = len(message.get("body", b""))
            self._seen += n
            self._budget.take(n)
            if self._seen > self._policy.max_request_bytes:
                raise _too_large(self._policy.max_request_bytes)
        self._complete = not message.get("more_body", False)
        return message

    async def _receive_in_time(self) -> Message:
        left = self._deadline - time.monotonic()
        try:
            return await asyncio.wait_for(self._receive(), max(left, 0.001))
        except asyncio.TimeoutError:
            seconds = self._policy.body_timeout_s
            raise RequestTimeout(
                f"The body was not complete after {seconds:g} s (--body-timeout)."
            ) from None

    def release(self) -> None:
        """The request is over, and its body is no longer held."""
        self._budget.release(self._seen)


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
