"""`make speak TEXT=...`: start a server on a free port, ask it for speech, write speech.wav."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import wave
from pathlib import Path

import httpx

OUTPUT = Path("speech.wav")


def main(text: str) -> int:
    command = [sys.executable, "-m", "phonate", "serve", "--port", "0", "--log-level", "warning"]
    begun = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = _address(server)
            up = time.monotonic()
            first, done = _ask(address, text)
        finally:
            server.terminate()
    with wave.open(str(OUTPUT)) as audio:
        seconds = audio.getnframes() / audio.getframerate()
    print(f"{OUTPUT}: {seconds:.2f} s of speech")
    print(f"server up after        {up - begun:6.3f} s")
    print(f"first audio after      {first:6.3f} s")
    print(f"all audio after        {done:6.3f} s  (real-time factor {done / seconds:.3f})")
    return 0


def _address(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    for line in server.stdout:
        if found := re.search(r"listens on (\S+)", line):
            return found[1]
    raise SystemExit("The server did not start; its own words are above.")


def _ask(address: str, text: str) -> tuple[float, float]:
    """Seconds to the first bytes and to the last. Streams, then writes exact sizes."""
    begun = time.monotonic()
    first = 0.0
    pcm = b""
    body = {"input": text, "response_format": "pcm"}
    with httpx.stream("POST", f"{address}/v1/audio/speech", json=body, timeout=120) as answer:
        if answer.status_code != 200:
            raise SystemExit(answer.read().decode())
        rate = int(answer.headers["X-Audio-Sample-Rate"])
        for piece in answer.iter_bytes():
            first = first or time.monotonic() - begun
            pcm += piece
    done = time.monotonic() - begun
    with wave.open(str(OUTPUT), "wb") as audio:
        audio.setnchannels(1)
        audio.setsampwidth(2)
        audio.setframerate(rate)
        audio.writeframes(pcm)
    return first, done


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
