"""Signs of life while healthy and none while not; reloads that end, whatever happens in them."""

from __future__ import annotations

import asyncio
import time

import pytest

from phonate.supervised import Supervised


class Manager:
    def __init__(self, watchdog_s=None):
        self.watchdog_s = watchdog_s
        self.heard = []

    def __getattr__(self, name):
        return lambda *_: self.heard.append(name)


async def until(condition):
    for _ in range(5000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not happen")


def no_reload():
    raise AssertionError("nobody asked for a reload")


async def test_no_sign_of_life_while_it_is_ill(caplog):
    healthy = True
    manager = Manager(watchdog_s=0.004)
    server = Supervised(manager, lambda: healthy, no_reload)
    server.started("Listening")
    await until(lambda: manager.heard.count("alive") >= 3)
    healthy = False
    await asyncio.sleep(0.02)
    manager.heard.clear()
    await asyncio.sleep(0.05)
    assert manager.heard == []
    assert caplog.text.count("not healthy") == 1, "said once, not at every turn"
    healthy = True
    await until(lambda: "alive" in manager.heard)
    server.ended()
    await asyncio.sleep(0.02)
    manager.heard.clear()
    await asyncio.sleep(0.02)
    assert manager.heard == []


async def test_a_stuck_loop_gives_none():
    manager = Manager(watchdog_s=0.004)
    server = Supervised(manager, lambda: True, no_reload)
    server.started("Listening")
    await asyncio.sleep(0)
    manager.heard.clear()
    time.sleep(0.05)  # noqa: ASYNC251 - the loop is to stand still
    assert manager.heard == []
    server.ended()


async def test_without_a_watchdog_there_is_none():
    manager = Manager()
    Supervised(manager, lambda: True, no_reload).started("Listening")
    await asyncio.sleep(0.02)
    assert manager.heard == ["ready"]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_reload_always_ends(fails, caplog):
    reloads = []

    def reload():
        reloads.append(1)
        if fails:
            raise OSError("gone")

    manager = Manager()
    server = Supervised(manager, lambda: True, reload)
    server.started("Listening")
    server.hangup()
    await until(lambda: manager.heard == ["ready", "reloading", "ready"])
    assert reloads == [1]
    assert ("failed" in caplog.text) is fails
