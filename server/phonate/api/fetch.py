"""Fetch a reference recording that a client names by URL, without becoming its proxy.

Only hosts that the operator named (`--allow-reference-urls`) are asked, only at public addresses,
and the connection goes to the very address that was checked: a name that resolves differently a
moment later gains nothing. Redirects are followed by hand and checked like the first address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable
from urllib.parse import urljoin, urlsplit

import httpx

from phonate.errors import InvalidRequest, TooLarge

MAX_BYTES = 10 * 2**20
MAX_REDIRECTS = 3
TIMEOUT_S = 10.0
"""For everything together: name, connection, redirects and body."""

Resolver = Callable[[str, int], Awaitable[list[str]]]


async def resolve(host: str, port: int) -> list[str]:
    """All addresses of a name. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_public(address: str) -> bool:
    """Whether an address is on the public internet; IPv4 in IPv6 clothes is judged as IPv4."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        embedded = ip.ipv4_mapped or ip.sixtofour or (ip.teredo or (None, None))[1]
        if embedded is not None:
            return is_public(str(embedded))
    return ip.is_global and not ip.is_multicast


class ReferenceFetcher:
    """`allowed`: host names, exact. `resolver` and `check` are for tests."""

    def __init__(
        self,
        allowed: Iterable[str],
        resolver: Resolver = resolve,
        check: Callable[[str], bool] = is_public,
    ) -> None:
        self._allowed = {host.lower().rstrip(".") for host in allowed}
        self._resolver = resolver
        self._check = check

    async def fetch(self, url: str, param: str = "ref_audio") -> bytes:
        """The body, at most MAX_BYTES. Raises InvalidRequest or TooLarge, with `param`; the words
        do not tell what is at an address that may not be asked."""
        try:
            return await asyncio.wait_for(self._follow(url, param), TIMEOUT_S)
        except asyncio.TimeoutError:
            raise InvalidRequest(
                f"{param}: fetching it took longer than {TIMEOUT_S:g} s.", param=param
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError):
            raise InvalidRequest(f"{param}: the address cannot be fetched.", param=param) from None

    async def _follow(self, url: str, param: str) -> bytes:
        for _ in range(MAX_REDIRECTS + 1):
            answer = await self._ask(url, param)
            if isinstance(answer, bytes):
                return answer
            url = urljoin(url, answer)
        raise InvalidRequest(f"{param}: more than {MAX_REDIRECTS} redirects.", param=param)

    async def _ask(self, url: str, param: str) -> bytes | str:
        """The body, or where a redirect points to."""
        parts = urlsplit(url)
        host = (parts.hostname or "").lower().rstrip(".")
        if parts.scheme not in ("http", "https") or host not in self._allowed:
            raise InvalidRequest(
                f"{param}: this server does not fetch from {host or url[:60]!r}. Send the audio "
                "itself as base64 or a data: URL; the operator can name hosts with "
                "--allow-reference-urls.",
                param=param,
            )
        port = parts.port or (443 if parts.scheme == "https" else 80)
        addresses = await self._resolver(host, port)
        if not addresses or not all(map(self._check, addresses)):
            raise InvalidRequest(
                f"{param}: {host!r} is not at a public address, so it is not asked.", param=param
            )
        address = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
        target = parts._replace(netloc=f"{address}:{port}", fragment="").geturl()
        headers = {"Host": parts.netloc.rpartition("@")[2]}
        tls = {"sni_hostname": host}
        async with (
            httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_S) as client,
            client.stream("GET", target, headers=headers, extensions=tls) as answer,
        ):
            if answer.is_redirect and "location" in answer.headers:
                return answer.headers["location"]
            if answer.status_code != 200:
                raise InvalidRequest(
                    f"{param}: the address answered {answer.status_code}.", param=param
                )
            body = bytearray()
            # Raw: a compressed body could unpack to anything.
            async for piece in answer.aiter_raw():
                body += piece
                if len(body) > MAX_BYTES:
                    raise TooLarge(f"{param} is larger than {MAX_BYTES} bytes.", param=param)
            return bytes(body)
