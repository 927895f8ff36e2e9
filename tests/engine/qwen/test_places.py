"""Places: never more than the width, in order, and a close that waits."""

from __future__ import annotations

import threading
import time

import pytest

from phonate.engine.qwen.places import Places
from phonate.errors import NotReady


def never() -> bool:
    return False


def in_thread(places: Places, n_places: int, entered: threading.Event, leave: threading.Event):  # type: ignore[no-untyped-def]
    def work() -> None:
        with places.taken(n_places, never):
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_width_is_kept() -> None:
    places, running, most = Places(2), 0, 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal running, most
        with places.taken(1, never):
            with lock:
                running += 1
                most = max(most, running)
            time.sleep(0.01)
            with lock:
                running -= 1

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 2


def test_order_of_arrival_is_kept_even_past_one_who_wants_all() -> None:
    places, order = Places(2), []
    entered, leave = threading.Event(), threading.Event()
    first = in_thread(places, 1, entered, leave)
    assert entered.wait(5)

    def work(name: str, n_places: int) -> None:
        with places.taken(n_places, never):
            order.append(name)

    threads = []
    for name, n_places in (("all", 2), ("one", 1)):
        threads.append(threading.Thread(target=work, args=(name, n_places)))
        threads[-1].start()
        time.sleep(0.1)
    assert order == [], "the second of two places is free, but it is not `one`'s turn"
    leave.set()
    for thread in (*threads, first):
        thread.join()
    assert order == ["all", "one"]


def test_waiting_gives_up_when_asked_to() -> None:
    places = Places(1)
    entered, leave = threading.Event(), threading.Event()
    holder = in_thread(places, 1, entered, leave)
    assert entered.wait(5)
    until = time.monotonic() + 0.1
    with places.taken(1, lambda: time.monotonic() > until) as placed:
        assert not placed
    leave.set()
    holder.join()
    with places.taken(1, never) as placed:
        assert placed


def test_place_is_given_back_after_an_exception() -> None:
    places = Places(1)
    with pytest.raises(ValueError, match="inside"), places.taken(1, never):
        raise ValueError("inside")
    with places.taken(1, never) as placed:
        assert placed


def test_close_turns_away_and_waits() -> None:
    places = Places(1)
    entered, leave = threading.Event(), threading.Event()
    holder = in_thread(places, 1, entered, leave)
    assert entered.wait(5)
    turned_away = threading.Event()

    def late() -> None:
        with pytest.raises(NotReady), places.taken(1, never):
            pass
        turned_away.set()

    waiter = threading.Thread(target=late)
    waiter.start()
    places.close()
    assert turned_away.wait(5)
    assert not places.wait_empty(0.05)
    leave.set()
    assert places.wait_empty(5)
    for thread in (holder, waiter):
        thread.join()
    with pytest.raises(NotReady), places.taken(1, never):
        pass
