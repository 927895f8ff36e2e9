"""WS /v1/audio/speech-stream: moves frames between a socket, a session and the engine.

What happens is decided in `speech.session`; here are only the socket, the clock and tasks. A
receive is always pending, so that a client that leaves is noticed while audio is pushed to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import time
import uuid
from functools import partial
from typing import Protocol

from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketState

from phonate.api.guard import refuse
from phonate.api.keys import SUBPROTOCOL_PREFIX
from phonate.api.schemas import SpeechBody
from phonate.api.state import State
from phonate.api.voice_choice import (
    ONE_OFF,
    FragmentPlan,
    FragmentRouter,
    filed_under,
    fragment_request,
)
from phonate.errors import (
    Busy,
    InternalError,
    InvalidRequest,
    NotReady,
    PhonateError,
    RateLimited,
)
from phonate.speech.fields import read
from phonate.speech.fragments import DEFAULT_MAX_CHARS
from phonate.speech.request import draw_seed
from phonate.speech.session import Session
from phonate.speech.session_engine import SessionEngine
from phonate.speech.session_events import (
    SAMPLE_RATE,
    Close,
    CloseCode,
    Command,
    Config,
    Event,
    Plan,
    Resolve,
    is_well_formed_id,
)
from phonate.speech.vllm_session import VllmSession

log = logging.getLogger("phonate.stream")
router = APIRouter()

CLOSE_PATIENCE_S = 5.0
"""How long a closing handshake may take before the connection is dropped."""


@router.websocket("/v1/audio/speech-stream")
async def speech_stream(socket: WebSocket) -> None:
    """Text in as it is written, speech out as it is spoken: docs/PROTOCOL.md."""
    state: State = socket.app.state.phonate
    await serve_session(socket, state, new_session(socket, state))


@router.websocket("/v1/audio/speech/stream")
async def vllm_stream(socket: WebSocket) -> None:
    """The same for clients of vLLM-Omni, in its words: `speech.vllm_session`."""
    state: State = socket.app.state.phonate
    session = new_session(socket, state)
    await serve_session(socket, state, session, VllmSession(session))


def new_session(socket: WebSocket, state: State) -> Session:
    return Session(
        session_id=_session_id(socket),
        request_id=socket.state.request_id,
        now=time.monotonic(),
        limits=state.session_limits,
    )


async def plan_for(config: Config, state: State, request_id: str, key: str) -> Plan:
    """The same checks as for an HTTP request with these fields. Raises from `InvalidRequest`."""
    given = config.model_dump(exclude_none=True, exclude=_NOT_HERE)
    body = read(SpeechBody, {**given, "response_format": "pcm", "input": "-"})
    request = await body.to_request(state, request_id, key, whole=False)
    if request.sample_rate != SAMPLE_RATE:
        raise InvalidRequest(
            f"sample_rate must be {SAMPLE_RATE} here; POST /v1/audio/speech offers others.",
            param="sample_rate",
        )
    # One seed for the whole session: its fragments shall sound like one voice.
    seed = draw_seed() if request.seed is None else request.seed
    request = dataclasses.replace(request, first_seed=seed, split="none")
    longest = state.service.engine.info.max_text_chars or DEFAULT_MAX_CHARS
    router = None
    if request.asked_language is None and request.voice != ONE_OFF:
        filed = await filed_under(state, request.asked_voice)
        router = FragmentRouter(state.routing, request, filed)
    state.service.observer.note(
        voice=request.voice, language=request.asked_language or "auto", format="pcm"
    )
    about = {"voice": request.voice, "language": request.asked_language, "seed": seed}
    return Plan(
        what=FragmentPlan(request),
        route=router,
        language=request.asked_language,
        max_chars=min(longest, DEFAULT_MAX_CHARS),
        about={name: value for name, value in about.items() if value not in (None, "")},
    )


_NOT_HERE = {"type", "session_id", "stream", "stream_format", "split"}
"""Fields that mean something else, or nothing, to the HTTP request that judges a config."""


def _session_id(socket: WebSocket) -> str:
    wanted = socket.headers.get("x-session-id", "")
    return wanted if is_well_formed_id(wanted) else "sess_" + uuid.uuid4().hex


def _subprotocol(socket: WebSocket) -> str | None:
    """Browsers fail the connection unless one of those they offered is chosen; rather not the one
    that holds the key."""
    offered: list[str] = socket.scope.get("subprotocols", [])
    plain = [name for name in offered if not name.startswith(SUBPROTOCOL_PREFIX)]
    return next(iter(plain + offered), None)


class Machine(Protocol):
    """What a protocol over a socket looks like from here; see `Session`."""

    def receive(self, frame: str, now: float) -> None: ...
    def receive_bytes(self, now: float) -> None: ...
    def disconnected(self, now: float) -> None: ...
    def drain(self, now: float, within_s: float) -> None: ...
    def tick(self, now: float) -> None: ...
    def next_deadline(self) -> float | None: ...
    def take_commands(self) -> list[Command]: ...
    def next_frame(self, now: float) -> Event | bytes | None: ...
    def frame_sent(self, now: float) -> None: ...
    def config_resolved(self, plan: Plan, now: float) -> None: ...
    def config_refused(self, error: PhonateError, now: float) -> None: ...
    def fail(self, error: PhonateError, now: float, code: CloseCode | None = None) -> None: ...


async def serve_session(
    socket: WebSocket, state: State, session: Session, machine: Machine | None = None
) -> None:
    """One connection from handshake to close. `machine` speaks another protocol over `session`."""
    client: str = socket.state.client
    if full := _no_place(state, client):
        await refuse(full, socket.scope, socket.receive, socket.send)
        return
    shell = _Shell(socket, state, session, machine or session)
    state.sessions[shell] = client
    try:
        request_id = socket.state.request_id.encode("ascii")
        await socket.accept(_subprotocol(socket), [(b"x-request-id", request_id)])
        await shell.run()
    finally:
        del state.sessions[shell]


def _no_place(state: State, client: str) -> PhonateError | None:
    """Why this client may not open another session now."""
    limit, per_key = state.settings.max_sessions, state.settings.max_sessions_per_key
    if len(state.sessions) >= limit:
        return Busy(f"All {limit} sessions (--max-sessions) are open.", retry_after_s=5)
    if per_key and list(state.sessions.values()).count(client) >= per_key:
        return RateLimited(
            f"{per_key} sessions at a time are allowed (--max-sessions-per-key). Close one first.",
            retry_after_s=5,
        )
    return None


class _Shell:
    def __init__(self, socket: WebSocket, state: State, session: Session, machine: Machine) -> None:
        self._socket = socket
        self._machine = machine
        self._state = state
        self._resolving: asyncio.Task[None] | None = None
        self._engine = SessionEngine(
            state.service, session, self._wake, partial(fragment_request, state)
        )
        self._loop = asyncio.get_running_loop()
        self._to_send = asyncio.Event()
        self._over = asyncio.Event()
        self._close: Close | None = None
        self._timer: asyncio.TimerHandle | None = None

    def drain(self, within_s: float) -> None:
        """The server stops: finish what is here within this time."""
        self._machine.drain(time.monotonic(), within_s)
        self._wake()

    def give_up(self) -> None:
        """That time is over."""
        stopping = NotReady("The server has shut down before this was finished.", retry_after_s=5)
        self._machine.fail(stopping, time.monotonic(), CloseCode.RESTART)
        self._wake()

    async def run(self) -> None:
        tasks = [asyncio.ensure_future(work) for work in (self._receive(), self._send())]
        tasks.append(asyncio.ensure_future(self._until_over()))
        self._wake()
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done() and not task.cancelled() and (error := task.exception()):
                    raise error
        finally:
            self._machine.disconnected(time.monotonic())
            self._carry_out()
            if self._timer is not None:
                self._timer.cancel()
            if self._resolving is not None:
                tasks.append(self._resolving)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._engine.close()
            await self._say_goodbye()

    async def _until_over(self) -> None:
        await self._over.wait()

    async def _receive(self) -> None:
        while True:
            message = await self._socket.receive()
            now = time.monotonic()
            if message["type"] == "websocket.disconnect":
                self._machine.disconnected(now)
                self._over.set()
            elif message.get("text") is not None:
                self._machine.receive(message["text"], now)
            else:
                self._machine.receive_bytes(now)
            self._wake()
            if self._over.is_set():
                return

    async def _send(self) -> None:
        while True:
            frame = self._machine.next_frame(time.monotonic())
            if frame is None:
                self._carry_out()
                self._to_send.clear()
                await self._to_send.wait()
                continue
            self._arm()
            try:
                if isinstance(frame, bytes):
                    await self._socket.send_bytes(frame)
                    self._state.traffic.sent_bytes["websocket"] += len(frame)
                else:
                    await self._socket.send_text(json.dumps(frame, ensure_ascii=False))
            except (WebSocketDisconnect, RuntimeError, OSError):
                # Gone in mid-send: the pending receive tells the machine.
                self._machine.disconnected(time.monotonic())
                self._over.set()
                return
            self._machine.frame_sent(time.monotonic())
            self._wake()

    def _wake(self) -> None:
        """Something happened: carry out commands, look what can be sent, set the clock."""
        self._carry_out()
        self._to_send.set()
        self._arm()

    def _carry_out(self) -> None:
        for command in self._machine.take_commands():
            if isinstance(command, Close):
                self._close = command
                self._over.set()
            elif isinstance(command, Resolve):
                self._resolving = asyncio.ensure_future(self._resolve(command.config))
            else:
                self._engine.carry_out(command)

    async def _resolve(self, config: Config) -> None:
        socket = self._socket
        key: str = getattr(socket.state, "key", "")
        try:
            plan = await plan_for(config, self._state, socket.state.request_id, key)
        except PhonateError as error:
            self._machine.config_refused(error, time.monotonic())
        except Exception:
            log.exception("request %s: a config failed", socket.state.request_id)
            crash = InternalError(socket.state.request_id)
            self._machine.config_refused(crash, time.monotonic())
        else:
            self._machine.config_resolved(plan, time.monotonic())
        self._wake()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._machine.next_deadline()
        if deadline is not None and not self._over.is_set():
            delay = max(0.0, deadline - time.monotonic())
            self._timer = self._loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        self._machine.tick(time.monotonic())
        self._wake()

    async def _say_goodbye(self) -> None:
        close = self._close or Close(CloseCode.SERVER_FAULT, "internal_error")
        if self._socket.application_state is not WebSocketState.CONNECTED:
            return
        if self._socket.client_state is not WebSocketState.CONNECTED:
            return
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError, asyncio.TimeoutError):
            await asyncio.wait_for(self._socket.close(close.code, close.reason), CLOSE_PATIENCE_S)
