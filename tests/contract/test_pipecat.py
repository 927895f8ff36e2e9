"""Pipecat's OpenAI service in a pipeline."""

import asyncio

import numpy as np
from loguru import logger
from pipecat.frames.frames import EndFrame, ErrorFrame, TTSAudioRawFrame, TTSSpeakFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.openai.tts import OpenAITTSService, OpenAITTSSettings

from conftest import SENTENCE, check_speech

logger.remove()


class Ear(FrameProcessor):
    def __init__(self):
        super().__init__()
        self.pcm = b""
        self.rates = set()
        self.errors = []

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            self.pcm += frame.audio
            self.rates.add(frame.sample_rate)
        if isinstance(frame, ErrorFrame):
            self.errors.append(frame.error)
        await self.push_frame(frame, direction)


async def test_a_sentence_through_a_pipeline(base_url):
    tts = OpenAITTSService(
        api_key="x", base_url=base_url, settings=OpenAITTSSettings(voice="alloy")
    )
    ear = Ear()
    task = PipelineTask(Pipeline([tts, ear]), params=PipelineParams(audio_out_sample_rate=24000))
    await task.queue_frames([TTSSpeakFrame(SENTENCE), EndFrame()])
    await asyncio.wait_for(PipelineRunner(handle_sigint=False).run(task), 60)
    assert ear.errors == []
    assert ear.rates == {24000}
    check_speech(np.frombuffer(ear.pcm, np.int16), 24000)
