"""What the door and the wire know in common, and count for /metrics: one object per app."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

OVER_CAPACITY = "over_capacity"
"""Key in `scope["state"]`: the connection is one more than `--max-connections`."""


@dataclass(eq=False)
class Traffic:
    """Labels of the counters come out of this package's code, never from clients."""

    draining: bool = False
    """The server is stopping: no new work, and connections are not kept."""
    refused: Counter[str] = field(default_factory=Counter)
    """By why: full, draining, rate_limit, head_too_large, head_timeout, send_timeout ..."""
    answers: Counter[int] = field(default_factory=Counter)
    """HTTP answers by status."""
    sent_bytes: Counter[str] = field(default_factory=Counter)
    """Bodies and frames by transport: http, websocket."""
