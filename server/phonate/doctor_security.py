"""`phonate doctor --security`: is this configuration safe to leave alone?

It looks at the options as given, at the files they name, at who runs it, and, where a server
answers at the address, at what that gives away without a key. A finding is fine, a note (know this,
decide), or bad, with the way out. docs/SECURITY.md tells the reasons.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import httpx

from phonate.api.guard import is_loopback
from phonate.settings import Loaded, Settings
from phonate.voices.objects import endpoint
from phonate.voices.open_shelf import local_root
from phonate.voices.place import Bucket, Place

MIN_KEY_CHARS = 16
"""Shorter keys can be guessed. `openssl rand -base64 24` makes one of 32."""

PROBE_TIMEOUT_S = 3.0
_NEW_KEY = "make one with `openssl rand -base64 24`"

Level = Literal["ok", "note", "bad"]
_MARKS: dict[Level, str] = {"ok": "ok", "note": "--", "bad": "!!"}


@dataclass(frozen=True, slots=True)
class Verdict:
    what: str
    state: str
    level: Level = "ok"
    remedy: str | None = None


def doctor_security(loaded: Loaded) -> bool:
    """Print the report; False when something is bad."""
    safe = True
    for finding in examine_security(loaded):
        print(f"[{_MARKS[finding.level]}] {finding.what}: {finding.state}")
        if finding.remedy:
            print(f"     -> {finding.remedy}")
        safe = safe and finding.level != "bad"
    return safe


def examine_security(loaded: Loaded) -> Iterator[Verdict]:
    settings = loaded.settings
    yield _user()
    yield _bind(settings)
    yield from _keys(settings, loaded.origins)
    yield from _voices(settings.voice_dir)
    yield from _cors(settings)
    yield _metrics(settings)
    yield _limits(settings)
    if settings.allow_reference_urls:
        hosts = ", ".join(settings.allow_reference_urls)
        yield Verdict(
            "reference URLs", f"recordings are fetched from {hosts}", "note",
            "leave --allow-reference-urls out where clients can send the recording itself",
        )  # fmt: skip
    if settings.log_level == "debug":
        yield Verdict(
            "log level", "debug: what people have spoken is logged", "bad", "--log-level info"
        )
    yield from probe(settings)


def _voices(place: Place) -> Iterator[Verdict]:
    if isinstance(place, Bucket):
        address = urlsplit(endpoint())
        if address.scheme == "http" and not is_loopback(address.hostname or ""):
            yield Verdict(
                "bucket", f"recordings travel to {place} unencrypted", "bad",
                "an AWS_ENDPOINT_URL that begins with https://",
            )  # fmt: skip
        yield from _folder("local copy of the voices", local_root(place))
    else:
        yield from _folder("voice folder", place)


def _user() -> Verdict:
    if os.geteuid() == 0:
        return Verdict(
            "user", "root", "bad",
            "run it as a user of its own that owns nothing but the voice folder",
        )  # fmt: skip
    return Verdict("user", f"uid {os.geteuid()}, not root")


def _has_key(settings: Settings) -> bool:
    return settings.api_key is not None or settings.api_key_file is not None


def _bind(settings: Settings) -> Verdict:
    where = f"{settings.host}:{settings.port}"
    if is_loopback(settings.host):
        return Verdict("address", f"{where}, this machine only")
    if not (settings.allow_lan and _has_key(settings)):
        return Verdict(
            "address", f"{where}, reachable from other machines without a key; it will not start",
            "bad", "--allow-lan with --api-key-file FILE, or --host 127.0.0.1 behind a proxy",
        )  # fmt: skip
    return Verdict(
        "address", f"{where}, reachable from other machines; keys and speech travel unencrypted",
        "note", "--host 127.0.0.1, and a proxy with TLS in front",
    )  # fmt: skip


def _keys(settings: Settings, origins: Mapping[str, str]) -> Iterator[Verdict]:
    if not _has_key(settings):
        yield Verdict(
            "keys", "none: every user and program of this machine may speak and change voices",
            "note", "--api-key-file FILE where others use this machine",
        )  # fmt: skip
        return
    for name in ("api_key", "metrics_key"):
        key = getattr(settings, name)
        flag = "--" + name.replace("_", "-")
        if key is None:
            continue
        if origins.get(name) == "flag":
            yield Verdict(
                flag, "on the command line, where every user sees it (ps)", "bad",
                f"PHONATE_{name.upper()}" + (", or --api-key-file" if name == "api_key" else ""),
            )  # fmt: skip
        if len(key) < MIN_KEY_CHARS:
            yield Verdict(flag, f"{len(key)} characters", "bad", _NEW_KEY)
    if settings.metrics_key is not None and settings.metrics_key == settings.api_key:
        yield Verdict("--metrics-key", "the same as --api-key", "bad", _NEW_KEY)
    if settings.api_key_file is not None:
        yield from _key_file(settings.api_key_file)


def _key_file(file: Path) -> Iterator[Verdict]:
    try:
        lines = file.read_bytes().splitlines()
        mode = file.stat()
    except OSError as error:
        yield Verdict("--api-key-file", f"{file}: {error.strerror}", "bad", "check the path")
        return
    if mode.st_mode & 0o077:
        yield Verdict(
            "--api-key-file", f"{file} may be read by others ({stat.filemode(mode.st_mode)})",
            "bad", f"chmod 600 {file}",
        )  # fmt: skip
    if mode.st_uid not in (0, os.geteuid()):
        yield Verdict(
            "--api-key-file", f"{file} belongs to uid {mode.st_uid}, who can change it", "bad",
            f"chown {os.geteuid()} {file}",
        )  # fmt: skip
    keys = [line.rpartition(b":")[2].strip() for line in lines
            if line.strip() and not line.strip().startswith(b"#")]  # fmt: skip
    short = sum(len(key) < MIN_KEY_CHARS for key in keys)
    if short:
        yield Verdict(
            "--api-key-file",
            f"{short} of {len(keys)} keys have fewer than {MIN_KEY_CHARS} characters",
            "bad", _NEW_KEY,
        )  # fmt: skip
    else:
        yield Verdict("--api-key-file", f"{len(keys)} keys of {MIN_KEY_CHARS} characters or more")


def _folder(what: str, folder: Path) -> Iterator[Verdict]:
    try:
        found = folder.stat()
    except OSError as error:
        yield Verdict(what, f"{folder}: {error.strerror}; it will be made for us alone", "note")
        return
    if found.st_mode & 0o077:
        yield Verdict(
            what, f"{folder} is open to others ({stat.filemode(found.st_mode)}): recordings of "
            "people's voices are in it", "bad", f"chmod 700 {folder}",
        )  # fmt: skip
    elif found.st_uid != os.geteuid():
        yield Verdict(
            what, f"{folder} belongs to uid {found.st_uid}, not to us", "bad",
            f"chown -R {os.geteuid()} {folder}, or run this as the server's user",
        )  # fmt: skip
    else:
        yield Verdict(what, f"{folder}, ours alone")


def _cors(settings: Settings) -> Iterator[Verdict]:
    for origin in settings.cors_origin:
        if origin in ("*", "null"):
            yield Verdict(
                "--cors-origin", f"{origin}: any web page may call", "bad",
                "name the origins, such as https://app.example",
            )  # fmt: skip
        elif not origin.startswith("https://") and not is_loopback(httpx.URL(origin).host):
            yield Verdict(
                "--cors-origin", f"{origin}: whoever is on the way can change that page", "bad",
                "serve it over https and name it so",
            )  # fmt: skip
    if not settings.cors_origin:
        yield Verdict("web origins", "loopback only")


def _metrics(settings: Settings) -> Verdict:
    if not settings.metrics:
        return Verdict("metrics", "off")
    if _has_key(settings):
        return Verdict("metrics", "on, behind a key")
    return Verdict("metrics", "on for everybody on this machine", "note", "--no-metrics")


def _limits(settings: Settings) -> Verdict:
    if settings.max_requests_per_minute is None and not is_loopback(settings.host):
        return Verdict(
            "rate", "one key may keep the engine busy for ever", "note",
            "--max-requests-per-minute, --max-sessions-per-key",
        )  # fmt: skip
    return Verdict("rate", "keys take turns in the queue")


# A server that runs -------------------------------------------------------------------------------


def probe(settings: Settings) -> Iterator[Verdict]:
    """What it gives to somebody without a key, and to a web page that should not reach it."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104
    address = f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"
    try:
        with httpx.Client(base_url=address, timeout=PROBE_TIMEOUT_S, trust_env=False) as http:
            if not http.get("/v1/test").is_success:
                raise httpx.RequestError("another server")
            yield from _ask(http, settings)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        yield Verdict(
            "running server", f"no phonate answers at {address} ({type(error).__name__})", "note",
            "start it with these options and run this again to see it from outside",
        )  # fmt: skip


def _ask(http: httpx.Client, settings: Settings) -> Iterator[Verdict]:
    open_to_all = http.post("/v1/audio/speech", json={}).status_code != 401
    if open_to_all and _has_key(settings):
        yield Verdict(
            "running server", "speaks without a key, though these options have one", "bad",
            "it runs with other options: restart it with these",
        )  # fmt: skip
    elif open_to_all and not is_loopback(settings.host):
        yield Verdict("running server", "speaks without a key", "bad", "--api-key-file FILE")
    else:
        asks = "asks everybody else for a key" if not open_to_all else "no key, loopback only"
        yield Verdict("running server", asks)
    if http.get("/metrics").is_success and _has_key(settings):
        yield Verdict("running server", "gives /metrics away without a key", "bad",
                       "restart it with these options")  # fmt: skip
    foreign = http.get("/v1/models", headers={"Host": "attacker.example"})
    if open_to_all and foreign.status_code != 403:
        yield Verdict("running server",
                      "answers to any Host: web pages can reach it (DNS rebinding)", "bad",
                       "set a key, or let the proxy in front check the Host")  # fmt: skip
    allowed = http.get("/v1/models", headers={"Origin": "https://attacker.example"})
    if "access-control-allow-origin" in allowed.headers:
        yield Verdict("running server", "lets any web page read its answers (CORS)", "bad",
                       "name the origins with --cors-origin")  # fmt: skip
    if settings.protect_listings and http.get("/v1/audio/voices").status_code != 401:
        yield Verdict("running server", "lists voices without a key", "bad",
                       "restart it with --protect-listings")  # fmt: skip
