"""What the door and the wire know in common, and count for /metrics: one object per app."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

OVER_CAPACITY = "over_capacity"
"""Key in `scope["state"]`: the connection is one more than `--max-connections`."""


WHY = (
    "full", "draining", "rate_limit", "head_too_large", "head_timeout", "not_http",
    "rest_of_body", "send_timeout",
)  # fmt: skip
"""Every word of `Traffic.refused`: a counter is there, at 0, before it counts."""


@dataclass(eq=False)
class Traffic:
    """Labels of the counters come out of this package's code, never from clients."""

    draining: bool = False
    """The server is stopping: no new work, and connections are not kept."""
    refused: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(WHY, 0)))
    """By why."""
    answers: Counter[int] = field(default_factory=Counter)
    """HTTP answers by status."""
    sent_bytes: Counter[str] = field(default_factory=Counter)
    """Bodies and frames by transport: http, websocket."""
