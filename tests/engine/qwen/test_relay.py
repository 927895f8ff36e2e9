"""Relay: a blocking sink holds nobody up, order is kept, failures cross over."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from phonate.engine.base import Samples, Sink
from phonate.engine.qwen.relay import HIGH_MARK, Relay


def chunk(i: int) -> Samples:
    return np.full(3, i, np.float32)


def test_chunks_arrive_in_order_and_the_result_comes_back() -> None:
    def call(sink: Sink) -> str:
        for i in range(200):
            assert sink(chunk(i))
        return "done"

    got: list[float] = []
    assert Relay(call).run(lambda c: not got.append(float(c[0]))) == "done"
    assert got == list(range(200))


def test_call_is_not_held_by_a_blocked_sink() -> None:
    finished, release = threading.Event(), threading.Event()

    def call(sink: Sink) -> None:
        for i in range(5):
            sink(chunk(i))
        finished.set()

    def sink(_samples: Samples) -> bool:
        return release.wait(10)

    relay: Relay[None] = Relay(call)
    thread = threading.Thread(target=relay.run, args=(sink,))
    thread.start()
    assert finished.wait(5), "the call ended while its listener still holds the first chunk"
    release.set()
    thread.join()


def test_may_go_follows_the_queue() -> None:
    waited, release = threading.Event(), threading.Event()

    def call(sink: Sink) -> None:
        made = 0
        while relay.may_go():
            sink(chunk(made))
            made += 1
            assert made <= HIGH_MARK + 2
        waited.set()
        while not relay.may_go():
            time.sleep(0.001)

    relay: Relay[None] = Relay(call)
    thread = threading.Thread(target=relay.run, args=(lambda _c: release.wait(10),))
    thread.start()
    assert waited.wait(5)
    release.set()
    thread.join(5)
    assert not thread.is_alive()


def test_refusing_sink_stops_the_call() -> None:
    made = []

    def call(sink: Sink) -> str:
        for i in range(10_000):
            made.append(i)
            if not sink(chunk(i)):
                return "stopped"
            time.sleep(0.001)
        return "ran through"

    got: list[Samples] = []
    assert Relay(call).run(lambda c: bool(got.append(c))) == "stopped"
    assert len(got) == 1


def test_exception_of_the_sink_stops_the_call_and_comes_out() -> None:
    stopped = threading.Event()

    def call(sink: Sink) -> None:
        while sink(chunk(0)):
            time.sleep(0.001)
        stopped.set()

    def sink(_samples: Samples) -> bool:
        raise KeyError("listener")

    with pytest.raises(KeyError, match="listener"):
        Relay(call).run(sink)
    assert stopped.is_set()


def test_exception_of_the_call_comes_out_after_its_audio() -> None:
    def call(sink: Sink) -> None:
        sink(chunk(1))
        raise OSError("native")

    got: list[Samples] = []
    with pytest.raises(OSError, match="native"):
        Relay(call).run(lambda c: not got.append(c))
    assert len(got) == 1
