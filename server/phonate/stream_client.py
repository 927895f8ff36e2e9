"""`phonate stream`: text from standard input, as it comes, to a running server; speech out.

    some-model --stream | phonate stream
    phonate stream -o talk.wav < talk.txt

Sound goes to a player that is installed, to a WAV file, or as raw PCM (s16le, 24 kHz, mono) to a
file or to standard output. What happens is told on standard error, with times.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import io
import json
import shutil
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast
from urllib.parse import quote, urlsplit, urlunsplit

import websockets
from websockets.asyncio.client import ClientConnection, connect

from phonate.audio import wav
from phonate.errors import PhonateError, SetupError

PATH = "/v1/audio/speech-stream"
SAMPLE_RATE = 24_000

PLAYERS: dict[str, list[str]] = {
    "pw-play": ["--format=s16", f"--rate={SAMPLE_RATE}", "--channels=1", "--raw", "-"],
    "paplay": ["--raw", "--format=s16le", f"--rate={SAMPLE_RATE}", "--channels=1"],
    "aplay": ["-q", "-t", "raw", "-f", "S16_LE", "-r", str(SAMPLE_RATE), "-c", "1", "-"],
    "ffplay": ["-loglevel", "error", "-nodisp", "-autoexit", "-f", "s16le", "-ar",
               str(SAMPLE_RATE), "-ch_layout", "mono", "-i", "-"],
    "mpv": ["--really-quiet", "--demuxer=rawaudio", f"--demuxer-rawaudio-rate={SAMPLE_RATE}",
            "--demuxer-rawaudio-channels=1", "--demuxer-rawaudio-format=s16le", "-"],
    "play": ["-q", "-t", "raw", "-r", str(SAMPLE_RATE), "-e", "signed", "-b", "16", "-c", "1", "-"],
}  # fmt: skip
"""Programs that play raw PCM from their standard input, the best first."""


class Sink(Protocol):
    """Where the sound goes. `write` may take as long as the listener needs."""

    async def write(self, pcm: bytes) -> None: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What the config event carries besides the defaults; None leaves a field out."""

    config: dict[str, Any] = field(default_factory=dict)
    key: str | None = None
    flush_lines: bool = False
    """Speak every line when it ends, as when a person types."""


async def speak_stream(
    url: str,
    pieces: AsyncIterator[str],
    sink: Sink,
    options: StreamOptions,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Send `pieces` as they come and write the audio to `sink`; the last event.

    `tell` gets a line for each thing that happens. Raises SetupError when the server cannot be
    reached or refuses, and the server's own error as a PhonateError.
    """
    try:
        async with _connected(url, options.key) as socket:
            await _send(socket, "config", **options.config)
            writing = asyncio.ensure_future(_write(socket, pieces, options.flush_lines))
            try:
                return await _read(socket, sink, tell)
            finally:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)
    finally:
        await sink.close()


@contextlib.asynccontextmanager
async def _connected(url: str, key: str | None) -> AsyncIterator[ClientConnection]:
    address = stream_address(url)
    headers = {"Authorization": f"Bearer {key}"} if key and key.isascii() else {}
    query = "" if headers or not key else f"?api_key={quote(key, safe='')}"
    try:
        # A player listens at its own pace, so a pong may come behind a minute of audio.
        async with connect(
            address + query, additional_headers=headers, max_size=None, ping_timeout=None
        ) as socket:
            yield socket
    except websockets.InvalidStatus as refused:
        body = bytes(refused.response.body or b"")
        raise SetupError(
            f"{address} refused: {_reason(body, refused.response.status_code)}"
        ) from None
    except (OSError, websockets.InvalidHandshake, websockets.InvalidURI) as error:
        raise SetupError(
            f"{address} cannot be reached ({error}). Is a server running there? "
            "`phonate serve` starts one."
        ) from None


def stream_address(url: str) -> str:
    """http://host:port, ws://..., with or without the path -> the WebSocket's address."""
    parts = urlsplit(url if "//" in url else f"//{url}", scheme="http")
    scheme = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise SetupError(f"--url {url}: expected http(s)://HOST:PORT or ws(s)://HOST:PORT.")
    path = parts.path.rstrip("/")
    return urlunsplit((scheme, parts.netloc, path if path.endswith(PATH) else path + PATH, "", ""))


async def _write(socket: ClientConnection, pieces: AsyncIterator[str], flush_lines: bool) -> None:
    with contextlib.suppress(websockets.ConnectionClosed):
        async for piece in pieces:
            for start in range(0, len(piece), 8192):
                await _send(socket, "text", text=piece[start : start + 8192])
            if flush_lines and piece.endswith("\n"):
                await _send(socket, "flush")
        await _send(socket, "end")


async def _read(
    socket: ClientConnection, sink: Sink, tell: Callable[[str], None]
) -> dict[str, Any]:
    began = time.monotonic()
    last: dict[str, Any] = {}
    try:
        async for frame in socket:
            if isinstance(frame, bytes):
                await sink.write(frame)
                continue
            last = json.loads(frame)
            line = _line(last)
            if line:
                tell(f"{time.monotonic() - began:8.3f} s  {line}")
    except websockets.ConnectionClosedError as error:
        if last.get("type") != "error":
            raise SetupError(f"The server closed the connection ({error}).") from None
    if last.get("type") == "error":
        error_ = last["error"]
        raise PhonateError(error_["message"], param=error_["param"], code=error_["code"])
    return last


def _line(event: dict[str, Any]) -> str | None:
    """An event for a person, None for one that says nothing to him."""
    said = " ".join(str(event.get("text", "")).split())
    told = {
        "ready": lambda: f"ready, voice {event.get('voice', 'default')}",
        "fragment_ready": lambda: f"text   {said!r}",
        "first_pcm_ready": lambda: (
            f"sound  after {event['timings']['synthesis_to_first_pcm_ms']:.0f} ms"
        ),
        "fragment_done": lambda: (
            f"spoken {(event['end_ms'] - event['start_ms']) / 1000:.2f} s"
            + ("" if event["finish_reason"] == "stop" else f" ({event['finish_reason']})")
        ),
        "warning": lambda: f"warning: {event['message']}",
        "done": lambda: f"done, {event['spoken_ms'] / 1000:.2f} s of speech",
        "cancelled": lambda: f"cancelled after {event['spoken_ms'] / 1000:.2f} s of speech",
    }.get(event["type"])
    return told() if told else None


async def _send(socket: ClientConnection, type_: str, **fields: Any) -> None:
    await socket.send(json.dumps({"type": type_, **fields}))


def _reason(body: bytes, status: int) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {status}"


# Text in ------------------------------------------------------------------------------------------


async def stdin_pieces() -> AsyncIterator[str]:
    """Standard input, as soon as there is something, without ever blocking the loop."""
    loop = asyncio.get_running_loop()
    source = cast(io.BufferedReader, sys.stdin.buffer)
    queue: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone: so are we
            while data := source.read1(8192):
                loop.call_soon_threadsafe(queue.put_nowait, data)
            loop.call_soon_threadsafe(queue.put_nowait, b"")

    threading.Thread(target=read, name="phonate-stdin", daemon=True).start()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while data := await queue.get():
        if text := decoder.decode(data):
            yield text
    if text := decoder.decode(b"", final=True):
        yield text


# Sound out ----------------------------------------------------------------------------------------


class FileSink:
    """A WAV file (by its ending), or raw PCM into a file or standard output."""

    def __init__(self, output: Path) -> None:
        if output != Path("-") and output.suffix.lower() not in (".wav", ".pcm", ".raw"):
            raise SetupError(f"-o {output}: the ending must be .wav, .pcm or .raw.")
        self._is_wav = output.suffix.lower() == ".wav"
        self._n_bytes = 0
        self._stream: BinaryIO
        if output == Path("-"):
            self._stream = sys.stdout.buffer
        else:
            try:
                self._stream = output.open("wb")
            except OSError as error:
                raise SetupError(f"-o {output}: cannot be written ({error.strerror}).") from None
        self._own = output != Path("-")
        if self._is_wav:
            self._stream.write(wav.header(SAMPLE_RATE))

    async def write(self, pcm: bytes) -> None:
        self._n_bytes += len(pcm)
        await asyncio.to_thread(self._put, pcm)

    def _put(self, pcm: bytes) -> None:
        self._stream.write(pcm)
        if not self._own:
            self._stream.flush()

    async def close(self) -> None:
        if self._is_wav:
            self._stream.seek(0)
            self._stream.write(wav.header(SAMPLE_RATE, self._n_bytes))
        if self._own:
            self._stream.close()


class PlayerSink:
    """An installed player. It takes sound at the pace of the listener, and so do we."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls) -> PlayerSink:
        for name, arguments in PLAYERS.items():
            if program := shutil.which(name):
                return cls(
                    await asyncio.create_subprocess_exec(
                        program, *arguments, stdin=asyncio.subprocess.PIPE
                    )
                )
        raise SetupError(
            f"No player was found (looked for {', '.join(PLAYERS)}). "
            "Install one, or write to a file with -o talk.wav."
        )

    async def write(self, pcm: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(pcm)
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise SetupError("The player ended; there is nobody to play to.") from None

    async def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._process.stdin.close()
            await self._process.stdin.wait_closed()
        await self._process.wait()


# The command --------------------------------------------------------------------------------------


def stream(url: str, output: Path | None, options: StreamOptions, *, quiet: bool) -> None:
    """Run until standard input ends and everything was spoken. Ctrl-C cancels."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_stream(url, output, options, quiet=quiet))


async def _stream(url: str, output: Path | None, options: StreamOptions, *, quiet: bool) -> None:
    stream_address(url)
    sink: Sink = FileSink(output) if output is not None else await PlayerSink.start()

    def tell(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr, flush=True)

    await speak_stream(url, stdin_pieces(), sink, options, tell)
