"""The HTTP connection under the app: what a client may do before, between and beside requests.

uvicorn's own protocol waits for ever for a request's head, and drops a connection whose head it
cannot read. This one has a clock, a count and an answer for each of these:

    head   not complete after --header-timeout: 408; larger than 16 KiB: 431; not HTTP: 400
    body   the rest of one that was refused: read for LINGER_S, so that the refusal arrives, then
           cut (--body-timeout, for one that is wanted, is the guard's)
    answer not read for --send-timeout: cut
    number beyond --max-connections: marked, and the guard answers 503 to all but health; beyond
           SPARE more: 503 at once, whatever it wants
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import h11
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from phonate.api.envelope import error_body
from phonate.api.guard import head_problem
from phonate.api.traffic import OVER_CAPACITY, Traffic
from phonate.errors import Busy, HeadTooLarge, InvalidRequest, PhonateError, RequestTimeout
from phonate.settings import Settings

log = logging.getLogger("phonate.access")

SPARE = 64
"""Connections beyond --max-connections that are still listened to, for health checks."""

LINGER_S = 5.0
"""How long the unwanted rest of a body is read and thrown away."""


@dataclass(frozen=True, slots=True)
class WireLimits:
    """See the options of the same names in `settings`."""

    max_connections: int = 1024
    header_timeout_s: float = 10.0
    send_timeout_s: float = 30.0


def wire_limits_of(settings: Settings) -> WireLimits:
    return WireLimits(
        max_connections=settings.max_connections,
        header_timeout_s=settings.header_timeout,
        send_timeout_s=settings.send_timeout,
    )


class WireProtocol(H11Protocol):
    """See the module's text."""

    def __init__(self, *args: Any, limits: WireLimits, traffic: Traffic, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._traffic = traffic
        self._clock: asyncio.TimerHandle | None = None
        """Runs while a head, or the rest of an unwanted body, is being received."""
        self._unread: asyncio.TimerHandle | None = None
        """Runs while the client does not read."""
        self._upgraded = False

    # The connection ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        excess = len(self.connections) - self._limits.max_connections
        if excess > 0:
            self.app_state = {**self.app_state, OVER_CAPACITY: True}
        if excess > SPARE:
            self._refuse("full", full(self._limits.max_connections))
            return
        self._start_clock(self._limits.header_timeout_s, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        self._stop_unread()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def shutdown(self) -> None:
        super().shutdown()
        self._end_unread()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._end_unread()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._upgraded = True
        self._stop_clock()
        super().handle_websocket_upgrade(event)

    def _should_upgrade(self) -> bool:
        # What the WebSocket library would choke on stays plain HTTP, where the guard refuses it.
        return head_problem(cast(Scope, self.scope)) is None and super()._should_upgrade()

    # Clocks -----------------------------------------------------------------------------------

    def _look(self) -> None:
        """After every step: what is the client in the middle of?"""
        theirs, ours = self.conn.their_state, self.conn.our_state
        if self._upgraded or self.transport.is_closing():
            self._stop_clock()
        elif theirs is h11.IDLE and self.conn.trailing_data[0]:
            if self._clock is None:
                self._start_clock(self._limits.header_timeout_s, self._head_is_late)
        elif theirs is h11.SEND_BODY and ours in (h11.DONE, h11.MUST_CLOSE):
            if self._clock is None:
                self._start_clock(LINGER_S, self._rest_is_late)
        else:
            self._stop_clock()

    def _start_clock(self, seconds: float, then: Callable[[], None]) -> None:
        self._clock = self.loop.call_later(seconds, then)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _head_is_late(self) -> None:
        if not self.conn.trailing_data[0]:
            self.transport.close()  # Opened ahead of need, as browsers do: no offence.
            return
        seconds = self._limits.header_timeout_s
        self._refuse(
            "head_timeout",
            RequestTimeout(
                f"The head of the request was not complete after {seconds:g} s (--header-timeout)."
            ),
        )

    def _rest_is_late(self) -> None:
        self._traffic.refused["rest_of_body"] += 1
        self.transport.close()
        self._end_unread()

    # Refusals that no request comes of --------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        # Called where uvicorn has just caught what h11 raised.
        error = sys.exc_info()[1]
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 431:
            self._refuse("head_too_large", HeadTooLarge(HEAD_TOO_LARGE))
        else:
            self._refuse("not_http", InvalidRequest("This is not an HTTP request."))

    def _refuse(self, why: str, error: PhonateError) -> None:
        self._stop_clock()
        self._traffic.refused[why] += 1
        self._traffic.answers[error.status] += 1
        request_id = "req_" + uuid.uuid4().hex
        log.info(
            "%s: %d before it was a request (%s)", request_id, error.status, why,
            extra={"request_id": request_id, "status": error.status},
        )  # fmt: skip
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._write(error, request_id)
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()
        self._end_unread()

    def _write(self, error: PhonateError, request_id: str) -> None:
        body = json.dumps(error_body(error)).encode()
        headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("X-Request-ID", request_id),
            ("Connection", "close"),
        ]
        if isinstance(error, Busy):
            headers.append(("Retry-After", str(error.retry_after_s)))
        head = h11.Response(
            status_code=error.status, headers=headers, reason=STATUS_PHRASES[error.status]
        )
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))

    # Clients that do not read -----------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_unread()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_unread()

    def _end_unread(self) -> None:
        """`close` waits until everything is written, which a client can put off for ever."""
        if self.transport.get_write_buffer_size():
            self._start_unread()

    def _start_unread(self) -> None:
        if self._unread is None:
            self._unread = self.loop.call_later(self._limits.send_timeout_s, self._cut)

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _cut(self) -> None:
        self._traffic.refused["send_timeout"] += 1
        self.transport.abort()


HEAD_TOO_LARGE = (
    "The head of the request is too large: at most 100 headers, 8,000 bytes a line and 16 KiB in "
    "all are taken."
)


def full(max_connections: int) -> Busy:
    return Busy(
        f"All {max_connections} connections (--max-connections) are taken. Try again later.",
        retry_after_s=1,
    )


def raise_file_limit(wanted: int) -> None:
    """Every connection is an open file; the usual limit of 1024 is a default, not a policy."""
    try:
        import resource
    except ImportError:  # Windows has no such limit.
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    possible = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
    if possible < wanted:
        logging.getLogger("phonate.serve").warning(
            "only %d files can be open (ulimit -n), which is less than --max-connections needs; "
            "raise the limit (LimitNOFILE= in systemd) or lower --max-connections", possible,
        )  # fmt: skip
