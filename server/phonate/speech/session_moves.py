"""The states of a WebSocket session, and which client events are legal in which."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from phonate.speech.session_events import CLIENT_EVENTS


class State(Enum):
    AWAITING_CONFIG = "awaiting config"
    CONFIGURING = "configuring"
    """The shell looks the voice up."""
    OPEN = "open"
    ENDING = "ending"
    CLOSING = "closing"
    """The last event waits to be sent."""
    CLOSED = "closed"


DEFER = "defer"
"""Instead of a method: handle the event once the config is resolved."""

MOVES: Mapping[State, Mapping[str, str]] = {
    State.AWAITING_CONFIG: {"config": "_on_config", "cancel": "_on_cancel", "end": "_on_end"},
    State.CONFIGURING: {
        **dict.fromkeys(CLIENT_EVENTS, DEFER),
        "cancel": "_on_cancel",
    },
    State.OPEN: {
        "config": "_on_config",
        "text": "_on_text",
        "flush": "_on_flush",
        "segment_start": "_on_segment_start",
        "skip_segment": "_on_skip_segment",
        "pause": "_on_pause",
        "resume": "_on_resume",
        "cancel": "_on_cancel",
        "end": "_on_end",
    },
    State.ENDING: {
        "flush": "_on_nothing",
        "skip_segment": "_on_skip_segment",
        "pause": "_on_pause",
        "resume": "_on_resume",
        "cancel": "_on_cancel",
        "end": "_on_nothing",
    },
}
"""Which client events are legal when, and the method that handles each. What is not here is
answered with an error and 1008; after the last event everything is ignored."""

NO_MORE = frozenset({"config", "text", "flush", "segment_start", "end"})
"""What a client may still have under way when the server has said `draining`: passed over."""

NOT_NOW = {
    State.AWAITING_CONFIG: "Send a config event first.",
    State.ENDING: "After 'end' the session only finishes speaking; open a new one for more text.",
}
"""What to do instead, for the error."""
