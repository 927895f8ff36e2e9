"""Threads that are kept for the next call, and those that hang."""

import queue
import threading

from phonate.speech.threads import SpareThreads

NAME = "phonate-test"


def threads(name):
    return [t for t in threading.enumerate() if t.name == name]


def finished(pool, spare):
    """Let a call end, and wait until its thread is a spare one."""
    done = queue.SimpleQueue()
    pool.run(lambda: done.put(threading.current_thread()))
    thread = done.get(timeout=5)
    for _ in range(5000):
        if len(pool._spare) >= spare or not thread.is_alive():
            return thread
        thread.join(0.001)
    raise AssertionError("The thread neither ended nor waits.")


def test_the_next_call_gets_the_thread_of_the_last():
    pool = SpareThreads(NAME)
    assert finished(pool, 1) is finished(pool, 1)


def test_a_call_that_hangs_costs_nobody_a_thread():
    pool, hang, reached = SpareThreads(NAME), threading.Event(), threading.Event()
    pool.run(lambda: (reached.set(), hang.wait(30)))
    assert reached.wait(5)
    assert len(threads(NAME)) == 1
    others = {finished(pool, 1), finished(pool, 1)}
    assert len(others) == 1
    hang.set()
    assert all(thread.daemon for thread in others)


def test_no_more_threads_wait_than_asked_for():
    pool, gate, at_work = SpareThreads(NAME, max_spare=2), threading.Event(), queue.SimpleQueue()
    for _ in range(5):
        pool.run(lambda: (at_work.put(threading.current_thread()), gate.wait(30)))
    busy = [at_work.get(timeout=5) for _ in range(5)]
    assert len(set(busy)) == 5
    gate.set()
    for _ in range(5000):
        alive = [thread for thread in busy if thread.is_alive()]
        if len(alive) == 2 and len(pool._spare) == 2:
            break
        busy[0].join(0.001)
    assert len([thread for thread in busy if thread.is_alive()]) == 2
    assert {thread.name for thread in busy if thread.is_alive()} == {f"{NAME}-spare"}


def test_what_a_call_held_is_free_when_it_is_over():
    import gc
    import weakref

    class Audio:
        def __call__(self):
            pass

    pool, audio = SpareThreads(NAME), Audio()
    gone = weakref.ref(audio)
    pool.run(audio)
    del audio
    finished(pool, 1)
    for _ in range(2000):
        gc.collect()
        if gone() is None:
            return
        threading.Event().wait(0.001)
    raise AssertionError("The thread still holds the call.")
