"""`phonate stream`, against a running server."""

from __future__ import annotations

import os
import subprocess
import sys
import wave
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support import running

from phonate.engine.scripted import Emit, ScriptedEngine, Wait, duration_of
from phonate.errors import PhonateError, SetupError
from phonate.stream_client import FileSink, StreamOptions, speak_stream, stream_address

TEXT = "This is the first sentence. And this is the second one."


class Memory:
    def __init__(self) -> None:
        self.pcm = b""
        self.closed = False

    async def write(self, pcm: bytes) -> None:
        self.pcm += pcm

    async def close(self) -> None:
        self.closed = True


async def pieces(*texts: str) -> AsyncIterator[str]:
    for text in texts:
        yield text


async def hear(server, *texts: str, **options) -> tuple[Memory, list[str], dict]:
    sink, lines = Memory(), []
    last = await speak_stream(
        server.address, pieces(*texts), sink, StreamOptions(**options), lines.append
    )
    return sink, lines, last


async def test_what_is_sent_is_heard(scripted) -> None:
    sink, lines, last = await hear(scripted, TEXT[:10], TEXT[10:])
    assert last["type"] == "done"
    assert sink.closed
    assert len(sink.pcm) / 48 == pytest.approx(last["spoken_ms"], abs=1)
    told = "\n".join(lines)
    for word in ("ready, voice tone", "This is the first sentence.", "sound  after", "done,"):
        assert word in told


async def test_lines_are_spoken_when_a_person_types() -> None:
    with running(ScriptedEngine()) as server:
        await hear(server, "one line\n", "another line\n", flush_lines=True)
        assert server.engine.texts == ["one line", "another line"]


async def test_long_pieces_are_cut_to_fit_frames() -> None:
    long = "many words are said here " * 3000
    with running(ScriptedEngine(lambda request: [Emit.tone(0.1)])) as server:
        _, _, last = await hear(server, long)
        assert last["type"] == "done"
        assert last["spoken_chars"] == len(long)


async def test_the_servers_error_is_ours(scripted) -> None:
    with pytest.raises(PhonateError, match="nobody") as caught:
        await hear(scripted, TEXT, config={"voice": "nobody"})
    assert caught.value.param == "voice"


async def test_a_missing_key_is_said() -> None:
    with running(ScriptedEngine(), api_key="ключ") as server:
        with pytest.raises(SetupError, match="key is needed"):
            await hear(server, TEXT)
        _, _, last = await hear(server, TEXT, key="ключ")
        assert last["type"] == "done"


async def test_no_server() -> None:
    sink = Memory()
    with pytest.raises(SetupError, match="phonate serve"):
        await speak_stream(
            "http://127.0.0.1:9", pieces(TEXT), sink, StreamOptions(), lambda line: None
        )
    assert sink.closed


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://h:8080", "ws://h:8080/v1/audio/speech-stream"),
        ("https://h/", "wss://h/v1/audio/speech-stream"),
        ("h:1", "ws://h:1/v1/audio/speech-stream"),
        ("ws://h/tts", "ws://h/tts/v1/audio/speech-stream"),
        ("ws://h/v1/audio/speech-stream", "ws://h/v1/audio/speech-stream"),
    ],
)
def test_addresses(url: str, address: str) -> None:
    assert stream_address(url) == address


@pytest.mark.parametrize("url", ["ftp://h", "http://", ""])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(SetupError, match="--url"):
        stream_address(url)


async def test_a_wav_file_is_exact(scripted, tmp_path: Path) -> None:
    file = tmp_path / "talk.wav"
    await speak_stream(
        scripted.address, pieces(TEXT), FileSink(file), StreamOptions(), lambda line: None
    )
    with wave.open(str(file)) as f:
        assert f.getframerate() == 24000
        assert f.getnframes() / 24000 > duration_of(TEXT) * 0.8
        assert file.stat().st_size == 44 + 2 * f.getnframes()


@pytest.mark.parametrize("name", ["talk.mp3", "talk", "nowhere/talk.wav"])
def test_files_that_cannot_be(name: str, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="-o "):
        FileSink(tmp_path / name)


def test_the_command_speaks_while_standard_input_is_still_open() -> None:
    with running(ScriptedEngine()) as server:
        command = subprocess.Popen(
            [sys.executable, "-m", "phonate", "stream", "--url", server.address, "-o", "-"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=dict(os.environ),
        )  # fmt: skip
        assert command.stdin is not None
        assert command.stdout is not None
        command.stdin.write(b"This is the first sentence. And then ")
        command.stdin.flush()
        first = command.stdout.read(4800)
        assert len(first) == 4800
        rest, errors = command.communicate(b"it goes on.", timeout=30)
        assert command.returncode == 0, errors
        assert server.engine.texts == ["This is the first sentence.", "And then it goes on."]
        assert len(first + rest) % 2 == 0
        assert b"done" in errors


def test_the_command_fails_with_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "phonate", "stream", "--url", "http://127.0.0.1:9", "-o", "-"],
        input=b"x", capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1
    assert b"cannot be reached" in done.stderr


async def test_a_slow_fragment_does_not_end_it() -> None:
    with running(ScriptedEngine(lambda r: [Wait(0.3), Emit.tone(0.5)])) as server:
        _, _, last = await hear(server, TEXT)
        assert last["type"] == "done"
