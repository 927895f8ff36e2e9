"""Pipecat's OpenAI service in a pipeline."""

import asyncio

import numpy as np
from loguru import logger
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    InterruptionFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.openai.tts import OpenAITTSService, OpenAITTSSettings

from conftest import ENDLESS, SENTENCE, check_speech

logger.remove()


class Ear(FrameProcessor):
    def __init__(self):
        super().__init__()
        self.pcm = b""
        self.rates = set()
        self.errors = []
        self.heard = asyncio.Event()

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            self.pcm += frame.audio
            self.heard.set()
            self.rates.add(frame.sample_rate)
        if isinstance(frame, ErrorFrame):
            self.errors.append(frame.error)
        await self.push_frame(frame, direction)


async def pipeline(base_url, *frames):
    tts = OpenAITTSService(
        api_key="x", base_url=base_url, settings=OpenAITTSSettings(voice="alloy")
    )
    ear = Ear()
    task = PipelineTask(Pipeline([tts, ear]), params=PipelineParams(audio_out_sample_rate=24000))
    await task.queue_frames(frames)
    return ear, task, PipelineRunner(handle_sigint=False).run(task)


async def test_a_sentence_through_a_pipeline(base_url):
    ear, _, run = await pipeline(base_url, TTSSpeakFrame(SENTENCE), EndFrame())
    await asyncio.wait_for(run, 60)
    assert ear.errors == []
    assert ear.rates == {24000}
    check_speech(np.frombuffer(ear.pcm, np.int16), 24000)


async def test_an_error_is_an_error_frame(guarded):
    errors = []
    tts = OpenAITTSService(
        api_key="wrong", base_url=f"{guarded}/v1", settings=OpenAITTSSettings(voice="alloy")
    )
    task = PipelineTask(Pipeline([tts]), params=PipelineParams(audio_out_sample_rate=24000))

    @tts.event_handler("on_error")
    async def heard(service, error):
        errors.append(error)

    @task.event_handler("on_pipeline_error")
    async def seen(task, frame):
        errors.append(frame)

    await task.queue_frames([TTSSpeakFrame(SENTENCE), EndFrame()])
    await asyncio.wait_for(PipelineRunner(handle_sigint=False).run(task), 60)
    assert any("401" in str(error.error) for error in errors)


async def test_cancelling_the_pipeline_stops_the_engine(stage):
    ear, task, run = await pipeline(stage.base_url, TTSSpeakFrame(ENDLESS))
    running = asyncio.ensure_future(run)
    await asyncio.wait_for(ear.heard.wait(), 20)
    async with stage.stops_async():
        await task.cancel()
        await asyncio.wait_for(running, 20)


async def test_an_interruption_stops_the_engine(stage):
    ear, task, run = await pipeline(stage.base_url, TTSSpeakFrame(ENDLESS))
    running = asyncio.ensure_future(run)
    await asyncio.wait_for(ear.heard.wait(), 20)
    async with stage.stops_async():
        await task.queue_frame(InterruptionFrame())
    await task.cancel()
    await asyncio.wait_for(running, 20)
