"""Time that stands still while paused."""

from __future__ import annotations

import asyncio

import pytest

from phonate.speech.stopwatch import Stopwatch


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_paused_time_does_not_count() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    clock.now += 1
    watch.pause()
    watch.pause()
    clock.now += 5
    assert watch.now() == 101.0
    watch.resume()
    watch.resume()
    clock.now += 1
    assert watch.now() == 102.0
    assert not watch.paused


async def test_waiting_for_it_to_run() -> None:
    watch = Stopwatch()
    await watch.until_running()
    watch.pause()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(watch.until_running(), 0.01)
    watch.resume()
    await watch.until_running()
