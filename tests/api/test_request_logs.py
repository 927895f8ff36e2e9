"""What the log of a running server says about requests, and what it must never say."""

from __future__ import annotations

import asyncio
import json
import re

import httpx
import pytest
from stream_client import session

from served import Served, served

SECRETS = ("cuttlefish", "pomegranate", "zeppelin", "harmonica")
"""Words that only the texts below have."""

TEXTS = (
    "The cuttlefish wears a hat.",
    "Fail with a pomegranate.",
    "Crash into the zeppelin.",
    "A harmonica, please.",
)


def speak(server: Served, text: str, **body: object) -> httpx.Response:
    return httpx.post(
        f"{server.address}/v1/audio/speech",
        json={"input": text, "response_format": "pcm", **body},
        headers={"X-Request-ID": "mine-1", "Authorization": "Bearer s3cret"},
        timeout=20,
    )


def ask(server: Served) -> None:
    """Every kind of answer to texts with the secret words in them."""
    assert [speak(server, text).status_code for text in TEXTS[:3]] == [200, 502, 500]
    assert speak(server, TEXTS[3], voice="nobody").status_code == 400
    assert speak(server, TEXTS[3] * 500).status_code == 400
    batch = {"items": [{"input": text} for text in TEXTS]}
    httpx.post(f"{server.address}/v1/audio/speech/batch", json=batch, timeout=20)
    httpx.post(f"{server.address}/v1/text/languages", json={"texts": list(TEXTS)})
    httpx.post(f"{server.address}/v1/audio/speech", content=f'{{"input": "{TEXTS[0]}'.encode())


async def converse(server: Served) -> None:
    """The same over the WebSocket."""
    async with session(server, config={}, query="?api_key=s3cret") as c:
        for text in TEXTS:
            await c.send("text", text=text)
            await c.send("flush")
        await c.send("end")
        await c.rest()
        assert len(c.of("warning")) == 2
    async with session(server, config={}) as c:
        await c.socket.send(f'{{"type": "text", "text": "{TEXTS[0]}')
        await c.rest()


@pytest.mark.parametrize("format_", ["text", "json"])
async def test_no_text_and_no_key_at_info(tmp_path, format_):
    with served(tmp_path, "--log-format", format_) as server:
        await asyncio.to_thread(ask, server)
        await converse(server)
    log = server.logged().lower()
    assert "post /v1/audio/speech 200" in log
    assert "valueerror" in log  # the crash is there, without its words
    for secret in (*SECRETS, "s3cret"):
        assert secret not in log, secret


async def test_every_line_about_a_request_carries_its_id(tmp_path):
    with served(tmp_path, "--log-format", "json") as server:
        speak(server, TEXTS[0])
        speak(server, TEXTS[2])
        async with session(server, config={}, headers={"X-Request-ID": "mine-ws"}) as c:
            await c.send("text", text=TEXTS[0])
            await c.send("end")
            await c.rest()
    lines = [json.loads(line) for line in server.logged().splitlines()]
    about = [x for x in lines if x["logger"] in ("phonate.access", "phonate.speech")]
    assert len(about) >= 6
    assert all(x["request_id"] in ("mine-1", "mine-ws") for x in about), about
    accepted = [x for x in lines if "[accepted]" in x["message"]]
    assert [x["request_id"] for x in accepted] == ["mine-ws"]
    spoken = next(x for x in about if x.get("outcome") == "stop")
    assert spoken["audio_s"] > 1
    assert spoken["voice"] == "tone"
    assert spoken["first_audio_ms"] > 0
    assert spoken["chars"] == len(TEXTS[0])


def test_text_lines_carry_it_too(tmp_path):
    with served(tmp_path) as server:
        speak(server, TEXTS[2])
    lines = [x for x in server.logged().splitlines() if re.search(r" phonate\.(access|speech)", x)]
    assert len(lines) >= 2
    assert all("mine-1" in line for line in lines)
    assert all("mine-1" in x for x in server.logged().splitlines() if "synthesis failed" in x)
