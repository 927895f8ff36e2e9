"""How many requests a client may make: one token bucket each, in bounded memory.

A bucket holds a minute's worth and fills all the time, so a quiet client may burst and a busy one
is slowed to the rate. A bucket that has filled up again says nothing and is forgotten.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MAX_CLIENTS = 10_000
"""Buckets kept. An address more makes us forget the one that has been quiet longest."""

_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one request was answered. Seconds; `wait_s` is 0 where it was granted."""

    limit: int
    remaining: int
    full_in_s: float
    wait_s: float

    @property
    def granted(self) -> bool:
        return self.wait_s == 0

    def headers(self) -> list[tuple[bytes, bytes]]:
        """As OpenAI's API names them."""
        found = {
            "x-ratelimit-limit-requests": str(self.limit),
            "x-ratelimit-remaining-requests": str(self.remaining),
            "x-ratelimit-reset-requests": duration(self.full_in_s),
        }
        if not self.granted:
            found["retry-after-ms"] = str(math.ceil(self.wait_s * 1000))
        return [(name.encode(), value.encode()) for name, value in found.items()]


class Buckets:
    """See the module's text. For one event loop."""

    def __init__(
        self,
        per_minute: int,
        clock: Callable[[], float] = time.monotonic,
        max_clients: int = MAX_CLIENTS,
    ) -> None:
        self._limit = per_minute
        self._per_s = per_minute / _MINUTE_S
        self._clock = clock
        self._max_clients = max_clients
        self._full_at: OrderedDict[str, float] = OrderedDict()
        """When each bucket will be full again; the client that was seen last comes last."""

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, client: str) -> Allowance:
        """One request of `client`."""
        now = self._clock()
        full_at = max(self._full_at.get(client, now), now)
        missing = (full_at - now) * self._per_s
        room = self._limit - missing
        # A hair of tolerance: who waits exactly as long as was asked for shall get in.
        if room < 1 - 1e-6:
            self._full_at.move_to_end(client)  # Who keeps knocking is not forgotten for it.
            return Allowance(self._limit, 0, full_at - now, (1 - room) / self._per_s)
        full_at += 1 / self._per_s
        self._full_at[client] = full_at
        self._full_at.move_to_end(client)
        self._forget(now)
        return Allowance(self._limit, max(0, math.floor(room - 1 + 1e-6)), full_at - now, 0.0)

    def _forget(self, now: float) -> None:
        """Two of the quietest at a time, so that full ones go faster than new ones come."""
        for _ in range(2):
            client, full_at = next(iter(self._full_at.items()))
            if full_at <= now or len(self._full_at) > self._max_clients:
                del self._full_at[client]
            if not self._full_at:
                return


def client_name(owner: str, address: tuple[str, int] | None) -> str:
    """Whom limits count for: a key, else an address. IPv6 by its /64, which is what one customer
    is given; counted one by one, a single machine would have more addresses than anybody."""
    if owner:
        return f"key {owner}"
    if address is None:
        return "local socket"
    try:
        ip = ipaddress.ip_address(address[0].partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return str(ipaddress.ip_network((int(ip) >> 64 << 64, 64)))
        ip = ip.ipv4_mapped
    return str(ip)


def duration(seconds: float) -> str:
    """120ms, 1.5s, 6m0s."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    if seconds < _MINUTE_S:
        return f"{seconds:.1f}".rstrip("0").rstrip(".") + "s"
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}m{rest}s"
