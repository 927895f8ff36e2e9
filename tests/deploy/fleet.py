"""Two instances of phonate behind a real proxy that runs the file of deploy/, all on loopback.

Of a configuration only ports and paths are changed, by `edited`, which insists on finding them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

import phonate

HERE = Path(__file__).parent
DEPLOY = HERE.parents[1] / "deploy"
PROXIES = ("nginx", "haproxy", "caddy")
CLIENT = "127.0.0.2"
"""Where clients come from: not the proxy's own address."""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@dataclass
class Instance:
    port: int
    log_file: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def busy(self) -> int:
        text = httpx.get(f"{self.url}/metrics").text
        (line,) = (x for x in text.splitlines() if x.startswith("phonate_active_requests "))
        return round(float(line.split()[1]))

    def log(self) -> list[dict[str, object]]:
        lines = self.log_file.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


@dataclass
class Front:
    """One proxy, as a client sees it."""

    name: str
    port: int
    fleet: Fleet

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    @property
    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.fleet.certificate))

    def client(self) -> httpx.Client:
        transport = httpx.HTTPTransport(verify=self.tls, local_address=CLIENT)
        return httpx.Client(transport=transport, base_url=self.url, timeout=30)


@dataclass
class Fleet:
    folder: Path
    certificate: Path
    stack: contextlib.ExitStack
    instances: list[Instance] = field(default_factory=list)
    fronts: dict[str, Front] = field(default_factory=dict)

    def busy_one(self, n_requests: int = 1) -> Instance:
        """The instance that speaks so many utterances right now."""
        until = time.monotonic() + 10
        while time.monotonic() < until:
            for instance in self.instances:
                if instance.process.poll() is None and instance.busy == n_requests:
                    return instance
            time.sleep(0.01)
        raise AssertionError(f"no instance has {n_requests} requests")

    def start(self, port: int) -> Instance:
        command = [
            sys.executable,
            str(HERE / "instance.py"),
            str(port),
            str(self.folder / "voices"),
        ]
        source = str(Path(phonate.__file__).parents[1])
        log = self.folder / f"{port}.log"
        process = self.stack.enter_context(_process(command, log, {"PYTHONPATH": source}))
        return Instance(port, log, process)

    def restart(self, gone: Instance) -> Instance:
        """Another one in its place, known to every proxy."""
        new = self.start(gone.port)
        self.instances[self.instances.index(gone)] = new
        _wait(new.url, True, new.log_file)
        time.sleep(2)  # until the proxies' checks have seen it twice
        return new


@contextlib.contextmanager
def fleet(folder: Path) -> Iterator[Fleet]:
    """Every proxy in front of the same two instances."""
    with contextlib.ExitStack() as stack:
        made = Fleet(folder, make_certificate(folder), stack)
        made.instances = [made.start(free_port()) for _ in range(2)]
        for instance in made.instances:
            _wait(instance.url, True, instance.log_file)
        for name, command_of in _COMMANDS.items():
            front = Front(name, free_port(), made)
            command, environ = command_of(front)
            stack.enter_context(_process(command, folder / f"{name}.log", environ))
            _wait(front.url, front.tls, folder / f"{name}.log")
            made.fronts[name] = front
        yield made


def make_certificate(folder: Path) -> Path:
    """Self-signed, for localhost; certificate and key also in one file, as HAProxy wants it."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost",
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    (folder / "both.pem").write_text(certificate.read_text() + key.read_text())
    return certificate


def edited(name: str, *changes: tuple[str, str]) -> str:
    text = (DEPLOY / name).read_text()
    for old, new in changes:
        assert old in text, f"deploy/{name} has no {old!r}"
        text = text.replace(old, new)
    return text


def _nginx(front: Front) -> tuple[list[str], Mapping[str, str]]:
    made = front.fleet
    one, two = made.instances
    site = edited(
        "nginx/phonate.conf",
        ("listen 443 ssl", f"listen 127.0.0.1:{front.port} ssl"),
        ("speech.example.com", "localhost"),
        ("/etc/ssl/phonate/fullchain.pem", str(made.certificate)),
        ("/etc/ssl/phonate/privkey.pem", str(made.folder / "key.pem")),
        ("127.0.0.1:8081", f"127.0.0.1:{one.port}"),
        ("127.0.0.1:8082", f"127.0.0.1:{two.port}"),
    )
    (made.folder / "site.conf").write_text(site)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "\n".join(f"{kind}_temp_path {made.folder}/{kind};" for kind in kinds)
    main = made.folder / "nginx.conf"
    # What a distribution's own nginx.conf does around a site.
    main.write_text(
        f"daemon off; pid {made.folder}/nginx.pid; error_log stderr warn; worker_processes 1;\n"
        f"events {{}}\nhttp {{ access_log off; {temporary} include site.conf; }}\n"
    )
    if os.getuid() == 0:  # the workers would otherwise be nobody, who may not enter our folder
        main.write_text("user root;\n" + main.read_text())
    return [_program("nginx"), "-p", str(made.folder), "-c", str(main), "-e", "stderr"], {}


def _haproxy(front: Front) -> tuple[list[str], Mapping[str, str]]:
    made = front.fleet
    one, two = made.instances
    text = edited(
        "haproxy/haproxy.cfg",
        ("bind :443 ssl", f"bind 127.0.0.1:{front.port} ssl"),
        ("/etc/haproxy/phonate.pem", str(made.folder / "both.pem")),
        ("127.0.0.1:8081", f"127.0.0.1:{one.port}"),
        ("127.0.0.1:8082", f"127.0.0.1:{two.port}"),
    )
    config = made.folder / "haproxy.cfg"
    config.write_text(text)
    return [_program("haproxy"), "-db", "-f", str(config)], {}


def _caddy(front: Front) -> tuple[list[str], Mapping[str, str]]:
    made = front.fleet
    # The name must not bring a certificate authority of Caddy's own onto this machine.
    files = f"tls {made.certificate} {made.folder / 'key.pem'}\n\tbind 127.0.0.1"
    text = edited(
        "caddy/Caddyfile", ("\trespond /metrics 404", f"\t{files}\n\trespond /metrics 404")
    )
    config = made.folder / "Caddyfile"
    config.write_text("{\n\tadmin off\n\tauto_https disable_redirects\n}\n" + text)
    environ = {
        "PHONATE_SITE": f"https://localhost:{front.port}",
        "PHONATE_INSTANCES": " ".join(f"127.0.0.1:{one.port}" for one in made.instances),
        "HOME": str(made.folder), "XDG_DATA_HOME": str(made.folder),
    }  # fmt: skip
    return [_program("caddy"), "run", "--adapter", "caddyfile", "--config", str(config)], environ


_COMMANDS = {"nginx": _nginx, "haproxy": _haproxy, "caddy": _caddy}


def _program(name: str) -> str:
    found = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    assert found, f"{name} is not installed: apt-get install {name}"
    return found


@contextlib.contextmanager
def _process(
    command: list[str], log: Path, environ: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env={**os.environ, **environ}, cwd=log.parent
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(url: str, verify: ssl.SSLContext | bool, log: Path, timeout_s: float = 20) -> None:
    until = time.monotonic() + timeout_s
    state = ""
    while time.monotonic() < until:
        try:
            answer = httpx.get(f"{url}/ready", verify=verify)
            if answer.status_code == 200:
                return
            state = f"{answer.status_code} {answer.text}"
        except httpx.TransportError as error:
            state = repr(error)
        time.sleep(0.05)
    raise AssertionError(f"{url} is not ready: {state}\n{log.read_text()}")
