"""A voice for one request: `ref_audio`, `ref_text`, `speaker_embedding`, `x_vector_only_mode`."""

from __future__ import annotations

import asyncio
import base64
import re
from typing import TYPE_CHECKING

import numpy as np

from phonate.audio.reference import load_reference, with_silent_end
from phonate.engine.base import EngineInfo, Reference
from phonate.errors import InvalidRequest, UnsupportedOperation

if TYPE_CHECKING:
    from phonate.api.schemas import SpeechBody
    from phonate.api.state import State

_DATA_URL = re.compile(r"data:[^,]*?;base64,", re.IGNORECASE)

TASKS = ("CustomVoice", "VoiceDesign", "Base")


def check_task(task: str | None, info: EngineInfo) -> None:
    """`task_type` names the kind of model; another kind than the loaded one is refused."""
    fits = {
        "customvoice": bool(info.speakers),
        "voicedesign": info.needs_instructions,
        "base": info.can_clone,
    }
    if task is not None and not fits[task.lower()]:
        can = [name for name in TASKS if fits[name.lower()]]
        raise UnsupportedOperation(
            f"task_type: the model {info.model!r} cannot do {task}; it can do "
            f"{', '.join(can) or 'none of them'}.",
            param="task_type",
        )


async def one_off_reference(body: SpeechBody, state: State, key: str) -> Reference | None:
    """What the body says its voice is made of; None if it says nothing. Fetches and decodes off
    the loop, and lets the engine listen to the recording in its turn."""
    info = state.service.engine.info
    if body.ref_audio is None and body.speaker_embedding is None:
        for name in ("ref_text", "x_vector_only_mode"):
            if getattr(body, name):
                raise InvalidRequest(f"{name} needs ref_audio beside it.", param=name)
        return None
    param = "ref_audio" if body.ref_audio is not None else "speaker_embedding"
    if not info.can_clone:
        raise UnsupportedOperation(
            f"{param}: the model {info.model!r} cannot clone a voice. Serve a Qwen3-TTS base model "
            "(--model 0.6b-base).",
            param=param,
        )
    if body.speaker_embedding is not None:
        if body.ref_audio is not None:
            raise InvalidRequest(
                "speaker_embedding and ref_audio exclude each other.", param="speaker_embedding"
            )
        return _embedding(body.speaker_embedding, info)
    assert body.ref_audio is not None
    recording = await _bytes_of(body.ref_audio, state)
    decoded = await asyncio.to_thread(load_reference, recording, param="ref_audio")
    audio = with_silent_end(decoded.samples, decoded.sample_rate)
    text = None if body.x_vector_only_mode else body.ref_text
    return await state.service.extract_voice(audio, text, key)


def _embedding(values: list[float], info: EngineInfo) -> Reference:
    if len(values) != info.embedding_dim:
        raise InvalidRequest(
            f"speaker_embedding must have {info.embedding_dim} numbers for this model, "
            f"not {len(values)}.",
            param="speaker_embedding",
        )
    return Reference(np.asarray(values, np.float32))


async def _bytes_of(ref_audio: str, state: State) -> bytes:
    if re.match(r"https?://", ref_audio, re.IGNORECASE):
        return await state.fetcher.fetch(ref_audio)
    if match := _DATA_URL.match(ref_audio):
        ref_audio = ref_audio[match.end() :]
    elif re.match(r"[a-z][a-z0-9+.-]*:", ref_audio, re.IGNORECASE):
        raise InvalidRequest(
            "ref_audio must be base64, a data: URL with base64, or an http(s) URL that the "
            "operator allows.",
            param="ref_audio",
        )
    try:
        return base64.b64decode("".join(ref_audio.split()), validate=True)
    except ValueError:  # binascii.Error is one; another comes of letters beyond ASCII
        raise InvalidRequest("ref_audio is not valid base64.", param="ref_audio") from None
