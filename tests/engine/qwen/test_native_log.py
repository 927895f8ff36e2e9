"""Native log lines: levels, the ceiling, and whose error a line was."""

from __future__ import annotations

import logging
import threading

import pytest

from phonate.engine.qwen.native_log import MAX_CHARS, MAX_LINES, WINDOW_S, NativeLog

LOGGER = logging.getLogger("test.native")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger=LOGGER.name)
    return caplog


def test_levels_of_the_abi(lines: pytest.LogCaptureFixture) -> None:
    log = NativeLog(LOGGER)
    for level in (0, 1, 2, 3, 99, -1):
        log.line(level, f"level {level}")
    assert [r.levelno for r in lines.records] == [10, 10, 30, 40, 40, 40]


def test_repeats_and_floods_are_counted(lines: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    log = NativeLog(LOGGER, clock)
    for _ in range(5):
        log.line(2, "the same")
    for i in range(1000):
        log.line(2, f"line {i}")
    assert len(lines.records) == MAX_LINES
    clock.now += WINDOW_S
    log.line(2, "later")
    assert lines.messages[-2:] == [
        f"{4 + 1000 - (MAX_LINES - 1)} native log lines were held back",
        "later",
    ]


def test_quiet_levels_cost_nothing_of_the_ceiling(lines: pytest.LogCaptureFixture) -> None:
    lines.set_level(logging.WARNING, logger=LOGGER.name)
    log = NativeLog(LOGGER, Clock())
    for i in range(MAX_LINES * 2):
        log.line(0, f"debug {i}")
    log.line(3, "an error")
    assert lines.messages == ["an error"]


def test_long_and_empty_lines(lines: pytest.LogCaptureFixture) -> None:
    log = NativeLog(LOGGER)
    log.line(1, "x" * (MAX_CHARS * 3))
    log.line(1, "  \n")
    assert [len(message) for message in lines.messages] == [MAX_CHARS]


def test_error_of_a_call_is_this_threads_if_it_has_one() -> None:
    log = NativeLog(LOGGER)
    log.line(3, "old")
    log.forget_error()
    assert log.error_of_call() == ""
    log.line(3, "mine")
    other = threading.Thread(target=log.line, args=(3, "another thread's"))
    other.start()
    other.join()
    assert log.error_of_call() == "mine"
    log.forget_error()
    other = threading.Thread(target=log.line, args=(3, "a worker's"))
    other.start()
    other.join()
    assert log.error_of_call() == "a worker's"
