"""Who is really asking, when a proxy asks for them. Plain ASGI, before everything else.

Headers are believed only from a peer that the operator named, since anybody can write them:

    X-Forwarded-For     the address nearest to us that is no trusted proxy is the client
    X-Forwarded-Proto   http or https, as the nearest proxy saw it
    X-Forwarded-Host    takes the place of Host; the Host that was sent is kept and checked too

From all others they are taken away, so that nothing behind this can mistake them for true.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import TypeAlias

from starlette.types import ASGIApp, Receive, Scope, Send

from phonate.errors import SetupError

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

UNIX = "unix"
"""The name of whoever connects to our unix socket, who has no address."""

_OURS = frozenset({b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"})
_HOST = re.compile(r"([\w.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?", re.ASCII)


class TrustedProxies:
    """From `--trusted-proxy`. Raises SetupError for what is neither an address nor a network."""

    def __init__(self, named: Sequence[str]) -> None:
        self.unix = UNIX in named
        self._networks = tuple(_network(one) for one in named if one != UNIX)

    def trusts(self, host: str | None) -> bool:
        """`host`: the peer's address as the socket has it, None on a unix socket."""
        if host is None:
            return self.unix
        address = _address(host)
        return address is not None and self._holds(address)

    def client(self, peer: str | None, chain: Sequence[str]) -> str | None:
        """`chain` is X-Forwarded-For, the farthest first. What is no address ends the search: what
        stands before it was written by somebody unknown. None: nobody but a unix peer is known."""
        found = peer
        for entry in reversed(chain):
            address = _address(_without_port(entry))
            if address is None:
                break
            found = str(address)
            if not self._holds(address):
                break
        return found

    def _holds(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def _network(text: str) -> Network:
    try:
        network = ipaddress.ip_network(text.strip())
    except ValueError as error:
        raise SetupError(
            f"--trusted-proxy {text}: {error}. Name an address (10.0.0.7), a network "
            f"(10.0.0.0/24), or {UNIX} for the peer on the unix socket."
        ) from None
    if network.prefixlen == 0:
        raise SetupError(
            f"--trusted-proxy {text}: this would let everybody say who they are. Name the proxies."
        )
    return network


def _address(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def _without_port(entry: str) -> str:
    """`1.2.3.4:5`, `[::1]:5`, `[::1]`, `::1` -> the address."""
    text = entry.strip().strip('"')
    if text.startswith("["):
        return text[1:].partition("]")[0]
    host, _, port = text.rpartition(":")
    return host if port.isdigit() and "." in host and ":" not in host else text


class Forwarded:
    """See the module's text. `trusted` None: nobody is. `root_path`: under which the proxy shows
    us; requests may come with it or without."""

    def __init__(self, app: ASGIApp, trusted: TrustedProxies | None, root_path: str = "") -> None:
        self._app = app
        self._trusted = trusted
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            scope["root_path"] = self._root_path
            self._correct(scope)
        await self._app(scope, receive, send)

    def _correct(self, scope: Scope) -> None:
        said = _said(scope)
        if not said:
            return
        scope["headers"] = [pair for pair in scope["headers"] if pair[0] not in _OURS]
        client = scope.get("client")
        peer = client[0] if client else None
        if self._trusted is None or not self._trusted.trusts(peer):
            return
        chain = said.get(b"x-forwarded-for", [])
        if (address := self._trusted.client(peer, chain)) != peer and address is not None:
            scope["client"] = (address, 0)
        proto = said.get(b"x-forwarded-proto", [""])[-1].lower()
        if proto in ("http", "https", "ws", "wss"):
            secure = proto in ("https", "wss")
            plain = "ws" if scope["type"] == "websocket" else "http"
            scope["scheme"] = plain + "s" * secure
        host = said.get(b"x-forwarded-host", [""])[-1]
        if _HOST.fullmatch(host):
            _set_host(scope, host)


def _said(scope: Scope) -> dict[bytes, list[str]]:
    """Each header's values; repeated ones count as one list (RFC 9110, 5.3)."""
    found: dict[bytes, list[str]] = {}
    for name, value in scope["headers"]:
        if name in _OURS:
            parts = value.decode("latin-1").split(",")
            found.setdefault(name, []).extend(part.strip() for part in parts)
    return found


def _set_host(scope: Scope, host: str) -> None:
    """The replaced Host goes to `scope["state"]["sent_host"]`: a proxy that passes the header on
    unseen would otherwise let a page of another origin call itself localhost."""
    sent = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    scope.setdefault("state", {})["sent_host"] = sent[0] if sent else None
    others = [pair for pair in scope["headers"] if pair[0] != b"host"]
    scope["headers"] = [(b"host", host.encode("latin-1")), *others]


def make_trusted(proxy_headers: bool, named: Sequence[str]) -> TrustedProxies | None:
    """From the two options, which only mean something together. Raises SetupError."""
    if proxy_headers and not named:
        raise SetupError(
            "--proxy-headers: say whose headers to believe, with --trusted-proxy ADDRESS."
        )
    if named and not proxy_headers:
        raise SetupError("--trusted-proxy: it needs --proxy-headers, which is off.")
    return TrustedProxies(named) if proxy_headers else None
