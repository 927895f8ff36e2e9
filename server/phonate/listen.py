"""The socket that `serve` listens on: an address and port, or a unix socket."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from phonate.errors import SetupError


@contextlib.contextmanager
def listening(host: str, port: int, uds: Path | None, uds_mode: str) -> Iterator[socket.socket]:
    """Bound, and taken away again at the end. Raises SetupError."""
    if uds is None:
        with bind(host, port) as sock:
            yield sock
        return
    with bind_unix(uds, int(uds_mode, 8)) as sock:
        made = uds.stat().st_ino
        try:
            yield sock
        finally:
            # A successor may have put its own there meanwhile: that one stays.
            with contextlib.suppress(OSError):
                if uds.lstat().st_ino == made:
                    uds.unlink()


def bind(host: str, port: int) -> socket.socket:
    """A TCP socket to listen on. Raises SetupError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sets TCP_NODELAY only where it is: without that, the
    # first audio waits up to 40 ms behind the headers for the client's delayed ACK.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except (OSError, OverflowError) as error:
        sock.close()
        raise SetupError(
            f"--host {host} --port {port}: cannot listen there ({error}). "
            "Choose another with --port, or --port 0 for a free one."
        ) from None
    return sock


def bind_unix(path: Path, mode: int) -> socket.socket:
    """A unix socket. One that a dead server left is replaced; one that answers is not."""
    if not hasattr(socket, "AF_UNIX"):
        raise SetupError(f"--uds {path}: this system has no unix sockets. Use --host and --port.")
    _clear(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # No moment at which others could connect: the mode is there from the beginning.
    before = os.umask(0o777 & ~mode)
    try:
        sock.bind(str(path))
    except OSError as error:
        sock.close()
        raise SetupError(
            f"--uds {path}: cannot listen there ({error.strerror or error}). "
            "The folder must exist and be writable, and the path have at most 107 bytes."
        ) from None
    finally:
        os.umask(before)
    return sock


def _clear(path: Path) -> None:
    try:
        kind = path.lstat().st_mode
    except OSError:
        return  # nothing there; or what bind will complain of
    if not stat.S_ISSOCK(kind):
        raise SetupError(f"--uds {path}: there is a file of another kind. Choose another path.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.settimeout(2)
            probe.connect(str(path))
        except ConnectionRefusedError:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            raise SetupError(
                f"--uds {path}: there is a socket that cannot be asked ({error.strerror or error})."
                " Remove it, or choose another path."
            ) from None
    raise SetupError(
        f"--uds {path}: another server listens there. Stop it, or choose another path."
    )


def address_of(sock: socket.socket) -> str:
    """http://host:port, or unix:PATH."""
    name = sock.getsockname()
    if isinstance(name, str):
        return f"unix:{name}"
    host, port = name[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
