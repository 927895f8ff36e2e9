"""Every option, said once: flags, PHONATE_* variables, the config file and the docs come from here.

A value is looked up as flag, then environment, then `--config FILE.toml`, then default. `load`
also tells where each value came from, for `phonate config` and for error messages.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError
from pydantic.fields import FieldInfo

from phonate.errors import SetupError
from phonate.voices.place import Bucket, place_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ENV_PREFIX = "PHONATE_"

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(b|k|m|g|kb|mb|gb|kib|mib|gib)?\s*", re.IGNORECASE)
_UNIT = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30}


def _bytes(value: object) -> object:
    """32MiB, 512k or a plain number of bytes."""
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        return int(float(match[1]) * _UNIT[(match[2] or "")[:1].lower()])
    return value


Bytes = Annotated[int, BeforeValidator(_bytes)]


def _cpu_mask(value: object) -> object:
    """A mask (`0x0f`, `15`: bit n is CPU n) or a list (`0-3`, `0,2`). A bare number is a mask."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if "," not in text and "-" not in text:
        return int(text, 0)
    mask = 0
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        low, high = int(first), int(last or first)
        if not 0 <= low <= high < 64:
            raise ValueError(f"{part.strip()!r} is no range of CPUs")
        for cpu in range(low, high + 1):
            mask |= 1 << cpu
    return mask


_CPUS = "a mask such as 0x0f, or a list such as 0-3,6, of the CPUs 0 to 63"

CpuMask = Annotated[int, BeforeValidator(_cpu_mask)]


VoicePlace = Annotated[Path | Bucket, BeforeValidator(place_of), PlainSerializer(str)]


def _option(default: Any, group: str, help_: str, **rules: Any) -> Any:
    """One option: its default, the heading it stands under, what it means, and its range.
    `also`: further names for it, which people bring from other servers. `allowed`: what it may
    be, for error messages, where it is no range."""
    extra = {
        "group": group,
        "secret": rules.pop("secret", False),
        "also": list(rules.pop("also", ())),
        "allowed": rules.pop("allowed", ""),
    }
    return Field(default, description=help_, json_schema_extra=extra, **rules)


def _default_voice_dir() -> Path:
    return Path(platformdirs.user_state_dir("phonate")) / "voices"


class Settings(BaseModel):
    """The effective configuration of one server. Frozen: a change means a restart, except where
    an option says that it is reread."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    # fmt: off
    model: str | None = _option(None, "Engine", "a Qwen3-TTS model: a short name, a hub id, or the path of a talker GGUF; default: the built-in voice", also=("model_id",))
    talker: Path | None = _option(None, "Engine", "path of the talker GGUF")
    codec: Path | None = _option(None, "Engine", "path of the codec GGUF")
    quant: Literal["F32", "BF16", "Q8_0", "Q4_K_M", "P5", "P4"] = _option("Q8_0", "Engine", "which files of a named model")
    model_cache_dir: Path | None = _option(None, "Engine", "where models are kept; default: the hub's own place")
    local_files_only: bool = _option(False, "Engine", "never download a model")
    library: str | None = _option(None, "Engine", "native library: a path, or a name that `phonate doctor` lists; default: the best that is found", also=("library_path",))
    device: Literal["auto", "cpu", "gpu"] = _option("auto", "Engine", "a library for another device is refused")
    cpu_threads: int | None = _option(None, "Engine", "threads of the native engine; default: physical cores, at most 8", ge=1, le=256)
    cpu_codec_threads: int = _option(0, "Engine", "threads of the codec, where the library has them apart; 0 is its choice", ge=0, le=256)
    cpu_affinity: CpuMask = _option(0, "Engine", "logical CPUs of the workers, where the library can pin them: a mask (0x0f) or a list (0-3,6); 0 is any", ge=0, lt=2**64, allowed=_CPUS)
    cpu_codec_affinity: CpuMask = _option(0, "Engine", "the same for the codec's threads", ge=0, lt=2**64, allowed=_CPUS)
    cpu_stream_frames: int = _option(0, "Engine", "codec frames in a chunk; 0 is the library's choice", ge=0, le=64)
    precision: Literal["exact", "fast"] = _option("exact", "Engine", "fast: fewer bits per weight, where the library has it")
    fa: bool = _option(True, "Engine", "flash attention, where the library has it")
    clamp_fp16: bool | None = _option(None, "Engine", "clamp to half precision; default: on the GPU only")
    codec_chunk_sec: float = _option(24.0, "Engine", "seconds that the codec decodes at a time when not streaming", gt=0, le=600)
    onset_silence_profile: str | None = _option(None, "Engine", "codes that are not chosen first, for one known pair of model files")
    isolate_engine: bool = _option(False, "Engine", "run the engine in a process of its own, which is started anew when it crashes or hangs")
    alias: list[str] = _option([], "Engine", "a further id under which the model is served")
    max_batch: int = _option(1, "Engine", "syntheses at a time", ge=1, le=64, also=("max_active_requests",))
    max_queued_requests: int = _option(8, "Engine", "requests that may wait; more are answered 503", ge=0, le=100_000)

    host: str = _option("127.0.0.1", "Network", "address to listen on")
    port: int = _option(8080, "Network", "port to listen on; 0 picks a free one", ge=0, le=65535)
    uds: Path | None = _option(None, "Network", "listen on this unix socket instead of an address")
    uds_mode: str = _option("660", "Network", "permissions of the unix socket, octal", pattern="^0?[0-7]{3}$", allowed="three octal digits, such as 660")
    root_path: str = _option("", "Network", "the path under which a proxy shows this server, such as /speech", pattern=r"^(/[\w.~-]+)*$", allowed="a path that begins with / and does not end with one")
    proxy_headers: bool = _option(False, "Network", "believe X-Forwarded-For, -Proto and -Host of trusted proxies")
    trusted_proxy: list[str] = _option([], "Network", "a proxy that --proxy-headers believes: an address, a network in CIDR form, or unix for the peer on the unix socket")
    allow_lan: bool = _option(False, "Network", "allow an address beyond loopback; needs an API key")
    cors_origin: list[str] = _option([], "Network", "a web origin that may call; default: loopback on any port")

    api_key: str | None = _option(None, "Keys", "clients must send this key as Bearer token", secret=True, min_length=1)
    api_key_file: Path | None = _option(None, "Keys", "file of keys, one a line, optionally name:key; reread on change")
    protect_listings: bool = _option(False, "Keys", "ask for the key for voices and models too")

    voice_dir: VoicePlace = _option(_default_voice_dir(), "Voices", "where registered voices are kept: a folder, or s3://bucket/prefix with phonate[s3]", allowed="a folder, or s3://bucket/prefix")
    max_voices: int = _option(1000, "Voices", "registered voices at most", ge=1, le=100_000)
    lang: str = _option("auto", "Languages", "language of requests that name none")
    language_fallback: str = _option("english", "Languages", "what a text of uncertain language is taken for")
    language_id_model: Path | None = _option(None, "Languages", "a fastText model; default: the bundled lid.176.ftz")
    voice_language_route: list[str] = _option([], "Languages", "BASE:LANG=VOICE: texts in LANG that ask for BASE are spoken by VOICE; LANG may be *")
    starter_voices: bool = _option(False, "Voices", "offer the voices that come with phonate for cloning models")
    voice_alias: list[str] = _option([], "Voices", "NAME=VOICE: answer to NAME with VOICE")

    startup_warmup_voice: str | None = _option(None, "Voices", "a voice that speaks into the void before the server is ready; one that is missing fails the start")
    startup_warmup_text: str = _option("Warm up the speech engine.", "Voices", "what it says", min_length=1, max_length=4096)
    startup_warmup_tokens: int = _option(32, "Voices", "codec frames of it at most", ge=1, le=4096)
    startup_warmup_routes: bool = _option(True, "Voices", "prepare the voices that routes lead to before the server is ready")
    allow_reference_urls: list[str] = _option([], "Voices", "a host from which ref_audio may be fetched")

    clone_mode: Literal["auto", "speaker_only"] = _option("auto", "Voices", "how requests that do not say clone: auto continues the recording where the voice has a transcript; speaker_only is faster and what RealtimeTTS does on the CPU")

    trim_silence: bool = _option(True, "Sound", "cut leading silence")
    silence_threshold: float = _option(0.005, "Sound", "mean |x| of 5 ms above which there is sound", ge=0, le=1)
    trim_pre_roll_ms: float = _option(15, "Sound", "kept before the first sound", ge=0, le=1000)
    trim_fade_in_ms: float = _option(15, "Sound", "fade-in where silence was cut", ge=0, le=1000)
    fragment_fade_out_after_ms: float = _option(1000, "Sound", "fragments longer than this end in a short fade", ge=0, le=60_000)
    startup_buffer_ms: float = _option(160, "Sound", "audio gathered before the first bytes leave; 0 is off", ge=0, le=10_000)
    comma_silence_duration: float = _option(0.15, "Sound", "seconds of pause after a clause", ge=0, le=10)
    sentence_silence_duration: float = _option(0.30, "Sound", "seconds of pause after a sentence", ge=0, le=10)

    max_input_chars: int = _option(4096, "Limits", "code points of one request's text", ge=1, le=10_000_000)
    max_request_bytes: Bytes = _option(32 * 2**20, "Limits", "size of a request body", ge=1024, le=2**34)
    max_output_bytes: Bytes = _option(64 * 2**20, "Limits", "PCM that one request may produce", ge=48_000, le=2**40)
    max_requests_per_minute: int | None = _option(None, "Limits", "requests that one key (without keys: one address) may make a minute; more are answered 429; default: no limit", ge=1, le=1_000_000)
    max_connections: int = _option(1024, "Limits", "connections open at a time; further ones are answered 503", ge=1, le=1_000_000)
    header_timeout: float = _option(10, "Limits", "seconds a client has to send the head of a request", gt=0, le=3600)
    body_timeout: float = _option(60, "Limits", "seconds a client has to send the body of a request", gt=0, le=86_400)
    keep_alive_timeout: float = _option(20, "Limits", "seconds that a connection may lie idle between requests; behind a proxy, more than the proxy's own", gt=0, le=3600)
    synthesis_timeout: float = _option(120, "Limits", "seconds from admission to the first audio, and for each further fragment", gt=0, le=86_400)
    send_timeout: float = _option(30, "Limits", "seconds after which a client that does not read what it is sent is cut off, over HTTP and WebSocket", gt=0, le=86_400)
    stall_timeout: float = _option(30, "Limits", "seconds without progress after which /health says degraded", gt=0, le=86_400)
    shutdown_timeout: float = _option(20, "Limits", "seconds that running utterances get to finish at shutdown", ge=0, le=86_400)

    max_sessions: int = _option(256, "WebSocket", "sessions open at a time", ge=1, le=100_000)
    max_sessions_per_key: int | None = _option(None, "WebSocket", "sessions that one key (without keys: one address) may have open; default: no limit", ge=1, le=100_000)
    session_idle_timeout: float = _option(120, "WebSocket", "seconds without an event or audio after which a session is closed", gt=0, le=86_400)
    pause_timeout: float = _option(60, "WebSocket", "seconds after which a paused session is cancelled", gt=0, le=86_400)
    stream_buffer_seconds: float = _option(30, "WebSocket", "audio that may wait for a slow reader before its synthesis is held", ge=0.2, le=3600)
    fragment_lookahead_words: int = _option(0, "WebSocket", "words that the first fragment waits for a sentence end before it settles for a clause", ge=0, le=50)

    metrics: bool = _option(True, "Logging", "serve /metrics; it needs a key where any is set")
    metrics_key: str | None = _option(None, "Logging", "a key that opens /metrics and nothing else", secret=True, min_length=1)
    traces: Literal["auto", "on", "off"] = _option("auto", "Logging", "OpenTelemetry traces, from phonate[otel]; auto: when OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_TRACES_EXPORTER=otlp asks for them")
    log_level: Literal["debug", "info", "warning", "error"] = _option("info", "Logging", "least severe message that is logged")
    log_format: Literal["text", "json"] = _option("text", "Logging", "one line of text, or one JSON object, a message")
    # fmt: on


Origin = Literal["flag", "environment", "file", "default"]


@dataclass(frozen=True)
class Loaded:
    settings: Settings
    origins: dict[str, Origin]


def flag_name(field: str) -> str:
    """max_input_chars -> --max-input-chars"""
    return "--" + field.replace("_", "-")


def group_of(info: FieldInfo) -> str:
    return str(_extra(info)["group"])


def other_names(info: FieldInfo) -> list[str]:
    """Names, spelled like fields, that mean this option too."""
    return list(_extra(info)["also"])


def is_secret(info: FieldInfo) -> bool:
    return bool(_extra(info)["secret"])


def secret_names() -> frozenset[str]:
    """Options that are keys."""
    return frozenset(name for name, info in Settings.model_fields.items() if is_secret(info))


def _extra(info: FieldInfo) -> dict[str, Any]:
    extra = info.json_schema_extra
    assert isinstance(extra, dict)
    return extra


SPELLINGS = {name: name for name in Settings.model_fields} | {
    other: name for name, info in Settings.model_fields.items() for other in other_names(info)
}
"""Every name that an option may be given by -> the option."""


def load(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
    file: Path | None = None,
) -> Loaded:
    """Merge the sources and check every value; None in `flags` means not given.

    Raises SetupError that names the flag (or variable, or key), the value and what is allowed.
    """
    layers: list[tuple[Origin, Mapping[str, Any]]] = [
        ("file", _read_file(file) if file else {}),
        ("environment", _read_environment(environ)),
        ("flag", {k: v for k, v in (flags or {}).items() if v is not None and v != []}),
    ]
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = dict.fromkeys(Settings.model_fields, "default")
    for origin, layer in layers:
        for key, value in layer.items():
            values[key] = value
            origins[key] = origin
    try:
        return Loaded(Settings(**values), origins)
    except ValidationError as error:
        raise SetupError(_explain(error, origins, file)) from None


def _is_list(info: FieldInfo) -> bool:
    return getattr(info.annotation, "__origin__", None) is list


def _read_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """PHONATE_PORT and the like; a list is separated by commas or line ends."""
    found: dict[str, Any] = {}
    for spelled, name in SPELLINGS.items():
        info = Settings.model_fields[name]
        value = environ.get(ENV_PREFIX + spelled.upper())
        if value is None or value == "" or name in found:
            continue
        if _is_list(info):
            found[name] = [part.strip() for part in re.split(r"[,\n]", value) if part.strip()]
        else:
            found[name] = value
    return found


def _read_file(path: Path) -> dict[str, Any]:
    """Keys with _ or -; tables are not used."""
    try:
        with path.open("rb") as stream:
            data = tomllib.load(stream)
    except OSError as error:
        raise SetupError(f"--config {path}: cannot be read ({error.strerror}).") from None
    except tomllib.TOMLDecodeError as error:
        raise SetupError(f"--config {path}: not valid TOML ({error}).") from None
    values: dict[str, Any] = {}
    for written, value in data.items():
        name = SPELLINGS.get(written.replace("-", "_"))
        if name is None:
            raise SetupError(
                f"--config {path}: unknown key {written!r}. `phonate config` lists all keys."
            )
        if name in values:
            raise SetupError(f"--config {path}: {written!r} says {name!r} a second time.")
        values[name] = value
    return values


def _explain(error: ValidationError, origins: Mapping[str, Origin], file: Path | None) -> str:
    first = error.errors()[0]
    field = str(first["loc"][0])
    where = {
        "flag": flag_name(field),
        "environment": ENV_PREFIX + field.upper(),
        "file": f"{file}: {field}",
        "default": flag_name(field),
    }[origins.get(field, "default")]
    message = first["msg"]
    limits = _range_text(Settings.model_fields[field]) if field in Settings.model_fields else ""
    return f"{where} {first.get('input')!r}: {message}.{limits}"


def _range_text(info: FieldInfo) -> str:
    if allowed := _extra(info)["allowed"]:
        return f" Allowed: {allowed}."
    bounds = {}
    for rule in info.metadata:
        for name in ("ge", "gt", "le", "lt"):
            if getattr(rule, name, None) is not None:
                bounds[name] = getattr(rule, name)
    low = bounds.get("ge", bounds.get("gt"))
    high = bounds.get("le", bounds.get("lt"))
    return f" Allowed: {low} to {high}." if low is not None and high is not None else ""
