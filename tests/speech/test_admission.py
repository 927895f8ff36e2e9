import asyncio

import pytest

from phonate.errors import Busy, NotReady, Timeout
from phonate.speech.admission import Admission


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_slots_are_handed_out_first_come_first_served():
    admission = Admission(max_active=1, max_queued=5)
    slot = await admission.acquire()
    order = []

    async def wait(name):
        held = await admission.acquire()
        order.append(name)
        await asyncio.sleep(0)
        held.release()

    tasks = [asyncio.create_task(wait(n)) for n in "abc"]
    await settle()
    assert (admission.active, admission.queued) == (1, 3)
    slot.release()
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "c"]
    assert (admission.active, admission.queued) == (0, 0)


async def test_keys_take_turns():
    admission = Admission(max_active=1, max_queued=10)
    slot = await admission.acquire()
    order = []

    async def wait(key):
        held = await admission.acquire(key)
        order.append(key)
        held.release()

    tasks = [asyncio.create_task(wait(k)) for k in "AAAAB"]
    await settle()
    slot.release()
    await asyncio.gather(*tasks)
    assert order == ["A", "B", "A", "A", "A"]


async def test_a_free_slot_goes_to_the_key_that_holds_the_fewest():
    """A holds all four, and more of A waits before B and C: they are next all the same."""
    admission = Admission(max_active=4, max_queued=20)
    held = [await admission.acquire("A") for _ in range(4)]
    order, slots = [], []

    async def wait(key):
        slot = await admission.acquire(key)
        order.append(key)
        slots.append(slot)

    tasks = [asyncio.create_task(wait(k)) for k in "AAAABBBC"]
    await settle()
    for slot in held:
        slot.release()
        await settle()
    # Then each holds one: turns.
    assert order == ["B", "C", "A", "B"]
    for slot in slots:
        slot.release()
        await settle()
    for slot in slots[4:]:
        slot.release()
    await asyncio.gather(*tasks)
    assert sorted(order) == sorted("AAAABBBC")
    assert (admission.active, admission.queued) == (0, 0)


async def test_keys_with_work_share_the_slots_evenly():
    """Whoever asks more often, however they arrived: over time each key gets its part."""
    admission = Admission(max_active=4, max_queued=1000)
    served = dict.fromkeys("ABCD", 0)

    async def work(key):
        slot = await admission.acquire(key)
        served[key] += 1
        at_forty.append(dict(served)) if sum(served.values()) == 40 else None
        await asyncio.sleep(0)
        slot.release()

    at_forty: list[dict[str, int]] = []
    asked = "A" * 100 + "B" * 50 + "C" * 12 + "D" * 12
    await asyncio.gather(*(work(key) for key in asked))
    assert served == {"A": 100, "B": 50, "C": 12, "D": 12}
    assert all(8 <= n <= 16 for n in at_forty[0].values()), at_forty


async def test_lanes_are_numbered_and_counted():
    clock = Clock()
    admission = Admission(max_active=3, max_queued=0, clock=clock)
    first, second = await admission.acquire(), await admission.acquire()
    assert (first.lane, second.lane) == (0, 1)
    assert [lane.busy for lane in admission.lanes] == [True, True, False]
    clock.now += 2
    first.release()
    first.release()
    clock.now += 1
    again = await admission.acquire()
    assert again.lane == 0
    second.release()
    assert [(lane.n_holds, lane.held_s, lane.busy) for lane in admission.lanes] == [
        (1, 2.0, True),
        (1, 3.0, False),
        (0, 0.0, False),
    ]


async def test_a_full_queue_is_refused_with_a_retry_after_from_recent_speed():
    clock = Clock()
    admission = Admission(max_active=1, max_queued=1, clock=clock)
    for _ in range(50):
        slot = await admission.acquire()
        clock.now += 10
        slot.release()
    slot = await admission.acquire()
    waiting = asyncio.create_task(admission.acquire())
    await settle()
    with pytest.raises(Busy) as caught:
        await admission.acquire()
    assert 15 <= caught.value.retry_after_s <= 20
    assert "--max-queued-requests 1" in caught.value.message
    slot.release()
    (await waiting).release()


async def test_no_queue_at_all():
    admission = Admission(max_active=1, max_queued=0)
    slot = await admission.acquire()
    with pytest.raises(Busy):
        await admission.acquire()
    slot.release()
    (await admission.acquire()).release()


async def test_a_deadline_ends_the_waiting():
    clock = Clock()
    admission = Admission(max_active=1, max_queued=1, clock=clock)
    slot = await admission.acquire()
    with pytest.raises(Timeout):
        await admission.acquire(deadline=clock.now + 0.01)
    assert admission.queued == 0
    slot.release()
    assert admission.active == 0


async def test_a_waiter_that_gives_up_leaves_no_trace():
    admission = Admission(max_active=1, max_queued=2)
    slot = await admission.acquire()
    first = asyncio.create_task(admission.acquire())
    second = asyncio.create_task(admission.acquire())
    await settle()
    first.cancel()
    await settle()
    assert admission.queued == 1
    slot.release()
    (await second).release()
    assert (admission.active, admission.queued) == (0, 0)


async def test_a_slot_handed_to_a_waiter_that_is_just_cancelled_goes_on_to_the_next():
    admission = Admission(max_active=1, max_queued=2)
    slot = await admission.acquire()
    first = asyncio.create_task(admission.acquire())
    second = asyncio.create_task(admission.acquire())
    await settle()
    slot.release()  # hands the slot to `first`, which has not run yet
    first.cancel()
    (await asyncio.wait_for(second, 1)).release()
    assert (admission.active, admission.queued) == (0, 0)


async def test_releasing_twice_is_harmless():
    admission = Admission(max_active=1, max_queued=0)
    slot = await admission.acquire()
    slot.release()
    slot.release()
    assert admission.active == 0
    await admission.acquire()
    with pytest.raises(Busy):
        await admission.acquire()


async def test_closing_refuses_newcomers_and_waiters_but_not_who_has_a_slot():
    admission = Admission(max_active=1, max_queued=2)
    slot = await admission.acquire()
    waiter = asyncio.create_task(admission.acquire())
    await settle()
    admission.close("The server is shutting down.")
    with pytest.raises(NotReady):
        await waiter
    with pytest.raises(NotReady):
        await admission.acquire()
    assert admission.active == 1
    slot.release()
    again = await admission.acquire(admitted=True)
    again.release()


async def test_who_gave_a_slot_up_may_wait_even_when_the_queue_is_full():
    admission = Admission(max_active=1, max_queued=0)
    slot = await admission.acquire()
    back = asyncio.create_task(admission.acquire(admitted=True))
    await settle()
    assert not back.done()
    slot.release()
    (await back).release()


async def test_many_at_once_never_exceed_the_slots():
    admission = Admission(max_active=3, max_queued=200)
    running = most = 0

    async def work(i):
        nonlocal running, most
        slot = await admission.acquire(str(i % 7))
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        slot.release()

    await asyncio.gather(*(work(i) for i in range(200)))
    assert most == 3
    assert (admission.active, admission.queued) == (0, 0)
