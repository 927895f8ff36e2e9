"""The answer that carries speech: nothing is promised before there is something to hear.

The status line waits for the first encoded audio, so that every failure before it has its true
status. A failure after it breaks the connection: a client must be able to tell a cut transfer from
a short one. While we wait or send, the client's leaving is watched for; it stops the engine.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import time
import urllib.parse
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Any, ParamSpec

import numpy as np
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from phonate.api.envelope import error_body, error_response
from phonate.api.presence import when_gone
from phonate.audio.encoders import FORMATS, Format
from phonate.errors import Cancelled, PhonateError
from phonate.speech.observer import Stage
from phonate.speech.utterance import Utterance

log = logging.getLogger("phonate.speech")

P = ParamSpec("P")


_TEXT, _NUMBER = {"type": "string"}, {"type": "integer"}
BINARY = {"schema": {"type": "string", "format": "binary"}}

SPEECH: dict[str, Any] = {
    "description": "Audio: chunked as it is made, or whole (`stream: false`) with its length and "
    "the headers said to be for that; or events. It begins when there is something to hear, so "
    "that what fails before has its own status; what fails later cuts the transfer.",
    "content": {
        **{row.content_type: BINARY for row in FORMATS.values()},
        "text/event-stream": {
            "schema": {"$ref": "#/components/schemas/SpeechEvent"},
        },
    },
    "headers": {
        "X-Voice": {"description": "Who speaks.", "schema": _TEXT, "required": True},
        "X-Language": {"schema": _TEXT, "required": True},
        "X-Seed": {"description": "Say it again: send this.", "schema": _NUMBER, "required": True},
        "X-Audio-Encoding": {"schema": _TEXT, "required": True},
        "X-Audio-Sample-Rate": {"schema": _NUMBER, "required": True},
        "X-Audio-Channels": {"schema": _NUMBER, "required": True},
        "X-Audio-Bits-Per-Sample": {"schema": _NUMBER, "required": True},
        "Server-Timing": {"schema": _TEXT, "required": True},
        "X-Unspoken-Text": {"description": "What the voice leaves out.", "schema": _TEXT},
        **{
            name: {"description": "Whole audio only.", "schema": schema}
            for name, schema in {
                "X-Finish-Reason": {"type": "string", "enum": ["stop", "length"]},
                "X-Audio-Duration-Ms": _NUMBER,
                "X-Usage-Input-Tokens": _NUMBER,
                "X-Usage-Output-Tokens": _NUMBER,
                "X-Usage-Total-Tokens": _NUMBER,
            }.items()
        },
    },
}
"""The good answer, for /openapi.json."""


def header_value(text: str, limit: int = 512) -> str:
    """ASCII as it is; anything else percent-encoded UTF-8 with RFC 8187's prefix."""
    text = text[:limit]
    if text.isascii() and text.isprintable():
        return text
    return "UTF-8''" + urllib.parse.quote(text, safe=" !#$&+-.^_`|~", errors="replace")


def usage_of(utterance: Utterance) -> dict[str, object]:
    """OpenAI's usage shape: text tokens in, codec frames out."""
    text, audio = utterance.n_text_tokens, utterance.n_frames
    return {
        "input_tokens": text,
        "output_tokens": audio,
        "total_tokens": text + audio,
        "input_token_details": {"text_tokens": text, "audio_tokens": 0},
    }


class AudioResponse(Response):
    """Speaks `utterance` in `format`. `delivery`: "whole" (exact sizes, Content-Length, usage
    headers), "stream" (chunked), "sse" (base64 deltas and a final usage event)."""

    def __init__(
        self,
        utterance: Utterance,
        format_: Format,
        delivery: str,
        headers: Mapping[str, str],
        executor: Executor,
    ) -> None:
        self._utterance = utterance
        self._format = format_
        self._delivery = delivery
        self._executor = executor
        self.status_code = 200
        self.background = None
        self.body = b""
        self._rate = utterance.request.sample_rate
        content_type = "text/event-stream" if delivery == "sse" else format_.content_type
        self.init_headers(
            {
                "Content-Type": content_type,
                "Cache-Control": "no-cache",
                "X-Accel-Buffering": "no",
                "X-Audio-Encoding": format_.encoding,
                "X-Audio-Sample-Rate": str(format_.wire_rate(self._rate)),
                "X-Audio-Channels": "1",
                "X-Audio-Bits-Per-Sample": "16",
                "X-Seed": str(utterance.seed),
                **{name: header_value(value) for name, value in headers.items()},
            }
        )
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with when_gone(receive, lambda: self._utterance.cancel("client_gone")):
                if self._delivery == "whole":
                    await self._send_whole(scope, receive, send)
                else:
                    await self._send_stream(scope, receive, send)
        except Cancelled as error:
            log.info("request %s: %s", scope["state"]["request_id"], error.message)
        finally:
            self._utterance.cancel("client_gone")

    async def _encode(self, call: Callable[P, bytes], *args: P.args, **kwargs: P.kwargs) -> bytes:
        if self._format.instant:
            return call(*args, **kwargs)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, partial(call, *args, **kwargs))

    async def _send_whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        utterance = self._utterance
        try:
            blocks = [block async for block in utterance.blocks()]
        except PhonateError as error:
            await self._refuse(error, scope, receive, send)
            return
        pcm = np.concatenate(blocks)
        with utterance.stage("encode", format=self._format.name, samples=len(pcm)) as stage:
            body = await self._encode(self._format.encode, pcm, self._rate)
            stage.note(bytes=len(body))
        usage = usage_of(utterance)
        self.headers["Content-Length"] = str(len(body))
        self.headers["X-Usage-Input-Tokens"] = str(usage["input_tokens"])
        self.headers["X-Usage-Output-Tokens"] = str(usage["output_tokens"])
        self.headers["X-Usage-Total-Tokens"] = str(usage["total_tokens"])
        self.headers["X-Audio-Duration-Ms"] = str(round(len(pcm) * 1000 / self._rate))
        self.headers["X-Finish-Reason"] = utterance.finish_reason
        await self._begin(send)
        await send({"type": "http.response.body", "body": body})

    async def _send_stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False
        wrap = _as_event if self._delivery == "sse" else bytes
        try:
            async with contextlib.aclosing(self._pieces()) as pieces:
                async for piece in pieces:
                    if not begun:
                        begun = True
                        await self._begin(send)
                    await send(
                        {"type": "http.response.body", "body": wrap(piece), "more_body": True}
                    )
        except PhonateError as error:
            if not begun:
                await self._refuse(error, scope, receive, send)
                return
            # Leaving the body open makes the server break the connection: that is the message. For
            # events, too: LiveKit knows none of errors, and would take what came for the whole.
            log.warning("request %s cut: %s", scope["state"]["request_id"], error.message)
            if self._delivery == "sse" and not isinstance(error, Cancelled):
                last = _error_event(error)
                await send({"type": "http.response.body", "body": last, "more_body": True})
            return
        last = self._done_event() if self._delivery == "sse" else b""
        await send({"type": "http.response.body", "body": last})

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        encoder = self._format.encoder(self._rate)
        busy_s = 0.0
        with contextlib.ExitStack() as until_end:
            stage: Stage | None = None
            async with contextlib.aclosing(self._utterance.blocks()) as blocks:
                async for block in blocks:
                    if stage is None:  # The wait for the first block is the engine's.
                        watch = self._utterance.stage("encode", format=self._format.name)
                        stage = until_end.enter_context(watch)
                    began = time.monotonic()
                    piece = await self._encode(encoder.feed, block)
                    busy_s += time.monotonic() - began
                    if piece:
                        yield piece
            if piece := await self._encode(encoder.finish):
                yield piece
            if stage is not None:
                stage.note(busy_s=busy_s)

    async def _begin(self, send: Send) -> None:
        # The seed may have changed in the one retry that a silent start is given.
        self.headers["X-Seed"] = str(self._utterance.seed)
        self.headers["Server-Timing"] = (
            f"queue;dur={self._utterance.queued_s * 1000:.2f}, "
            f"engine;dur={(self._utterance.engine_first_chunk_s or 0) * 1000:.2f}"
        )
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )

    async def _refuse(
        self, error: PhonateError, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if isinstance(error, Cancelled) and error.reason == "client_gone":
            raise error
        await error_response(error)(scope, receive, send)

    def _done_event(self) -> bytes:
        return _event(
            {
                "type": "speech.audio.done",
                "usage": usage_of(self._utterance),
                "finish_reason": self._utterance.finish_reason,
            }
        )


def _event(payload: dict[str, object]) -> bytes:
    return f"event: {payload['type']}\ndata: {json.dumps(payload)}\n\n".encode()


def _as_event(piece: bytes) -> bytes:
    audio = base64.b64encode(piece).decode("ascii")
    return _event({"type": "speech.audio.delta", "audio": audio})


def _error_event(error: PhonateError) -> bytes:
    return _event({"type": "speech.audio.error", **error_body(error)})
