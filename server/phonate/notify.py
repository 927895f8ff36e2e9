"""What a service manager wants to hear: the protocol of sd_notify, a datagram of NAME=VALUE lines.

Without NOTIFY_SOCKET in the environment nothing is sent. A manager that does not listen is no
reason to stop serving: errors are logged once.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping

log = logging.getLogger("phonate.notify")


class Notifier:
    """`watchdog_s`: how often the manager wants a sign of life; None when it does not."""

    def __init__(self, address: str | None = None, watchdog_s: float | None = None) -> None:
        self._address = address
        self.watchdog_s = watchdog_s

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Notifier:
        address = environ.get("NOTIFY_SOCKET") or None
        return cls(address, _watchdog(environ) if address else None)

    def ready(self, status: str) -> None:
        """Also the end of a reload."""
        self._send(f"READY=1\nSTATUS={status}\nMAINPID={os.getpid()}")

    def reloading(self) -> None:
        # The stamp is what Type=notify-reload waits for.
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(_CLOCK) // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1\nSTATUS=Finishing what is being spoken")

    def status(self, text: str) -> None:
        self._send(f"STATUS={text}")

    def alive(self) -> None:
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if self._address is None:
            return
        # @ stands for the zero byte that abstract sockets begin with.
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.setblocking(False)  # the loop must not wait for the manager
                sock.sendto(message.encode(), address)
        except OSError as error:
            level = logging.DEBUG if message == "WATCHDOG=1" else logging.WARNING
            log.log(level, "the service manager cannot be told %r: %s", message, error)


_CLOCK = getattr(time, "CLOCK_MONOTONIC", 1)


def _watchdog(environ: Mapping[str, str]) -> float | None:
    """None when WATCHDOG_USEC is absent, wrong, or meant for another process."""
    pid = environ.get("WATCHDOG_PID")
    if pid and pid != str(os.getpid()):
        return None
    try:
        microseconds = int(environ.get("WATCHDOG_USEC", ""))
    except ValueError:
        return None
    return microseconds / 1e6 if microseconds > 0 else None
