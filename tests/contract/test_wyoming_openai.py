"""wyoming_openai, after what it is known to do: it opens the first 2,048 bytes of a streamed WAV
with Python's `wave`, and takes all that follows the header for samples."""

import io
import wave

import numpy as np
import openai

from conftest import SENTENCE, check_speech

HEADER = 44
FIRST = 2048


def test_its_first_look_at_a_stream_finds_the_format(base_url):
    pieces = []
    with (
        openai.OpenAI(base_url=base_url, api_key="x") as client,
        client.audio.speech.with_streaming_response.create(
            model="tts-1", voice="alloy", input=SENTENCE, response_format="wav"
        ) as answer,
    ):
        pieces.extend(answer.iter_bytes(chunk_size=FIRST))
    assert len(pieces[0]) == FIRST
    with wave.open(io.BytesIO(pieces[0])) as first:
        assert (first.getframerate(), first.getsampwidth(), first.getnchannels()) == (24000, 2, 1)
        assert first.readframes((FIRST - HEADER) // 2) == pieces[0][HEADER:]
    check_speech(np.frombuffer(b"".join(pieces)[HEADER:], "<i2"), 24000)
