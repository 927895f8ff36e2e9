"""When the next process starts: the back-off, over processes that only play dead."""

from __future__ import annotations

import re
import threading
import time

import pytest
from isolated_engines import CLONER

from phonate.engine.isolated import values
from phonate.engine.isolated.supervisor import CAUSES, Supervisor, Timing
from phonate.engine.isolated.wire import Frame, Kind

FAST = Timing(beat=0.01, first_backoff=0.001, last_backoff=0.008, healthy=0.1, wait=2)


class Actor:
    """A process that lives for `lives_s` once it is ready, then ends with `code`."""

    nonsense = last_words = ""
    silent_ticks = 0

    def __init__(self, changed, lives_s, code=-6):
        self.answer = Frame(Kind.READY, fields=values.pack_info(CLONER))
        self.ended = False
        self.told = []
        self._code = code
        self._gone = threading.Event()

        def end():
            self.ended = True
            self._gone.set()
            changed()

        self._end = end
        if lives_s is not None:
            threading.Timer(lives_s, end).start()

    def tell(self, kind, call=0, fields=None, body=b""):
        self.told.append((kind, fields))
        if kind is Kind.CLOSE:
            self._end()

    def tick(self):
        pass

    def stalled(self, tick_s):
        return None

    def kill(self):
        self._code = -9
        self._end()

    def wait(self, timeout_s):
        return self._gone.wait(timeout_s)

    def bury(self):
        assert self._gone.wait(5)
        return self._code

    def fail_calls(self, failure):
        pass


class Stage:
    """Launches one actor per life; the last one stays."""

    def __init__(self, *lives):
        self._lives = list(lives)
        self.actors = []
        self.all_on = threading.Event()

    def __call__(self, changed):
        life = self._lives.pop(0)
        if isinstance(life, OSError):
            raise life
        actor = Actor(changed, life)
        self.actors.append(actor)
        if not self._lives:
            self.all_on.set()
        return actor


def play(stage, timing=FAST):
    supervisor = Supervisor(stage, {"warm": False}, timing)
    supervisor.start()
    assert stage.all_on.wait(10)
    assert supervisor.running() is stage.actors[-1]
    return supervisor


def pauses(caplog):
    found = [re.search(r"starts in ([\d.]+) s", r.getMessage()) for r in caplog.records]
    return [float(match[1]) for match in found if match]


def test_the_back_off_doubles_up_to_its_end_and_begins_anew_after_a_healthy_life(caplog):
    timing = Timing(beat=0.01, first_backoff=0.1, last_backoff=0.4, healthy=0.3, wait=5)
    supervisor = play(Stage(0, 0, 0, 0, 0.5, 0, None), timing)
    assert pauses(caplog) == [0.1, 0.2, 0.4, 0.4, 0.1, 0.2]
    assert supervisor.vitals.restarts == {**dict.fromkeys(CAUSES, 0), "crashed": 6}
    supervisor.close()


def test_a_process_that_cannot_be_launched_is_tried_again(caplog):
    stage = Stage(0, OSError("no memory"), OSError("no memory"), None)
    supervisor = play(stage)
    assert supervisor.vitals.restarts["failed_start"] == 2
    assert "no memory" in caplog.text
    supervisor.close()


def test_a_beat_that_fails_to_come_is_death():
    stage = Stage(None, None)
    supervisor = Supervisor(stage, {}, Timing(beat=0.01, silent=0.05, first_backoff=0.001))
    supervisor.start()
    stage.actors[0].silent_ticks = 5
    time.sleep(0.05)
    assert len(stage.actors) == 1, "five ticks of 0.01 s are not yet too many"
    stage.actors[0].silent_ticks = 6
    assert stage.all_on.wait(5)
    assert supervisor.vitals.restarts["silent"] == 1
    supervisor.close()


def test_a_restart_that_takes_for_ever_is_given_up():
    class Slow(Stage):
        def __call__(self, changed):
            actor = super().__call__(changed)
            if len(self.actors) == 2:
                actor.answer = None
            return actor

    supervisor = play(Slow(0, None, None), Timing(beat=0.01, restart=0.1, first_backoff=0.001))
    assert supervisor.vitals.restarts["failed_start"] == 1
    supervisor.close()


def test_a_new_process_is_as_warm_as_the_last_was_asked_to_be():
    stage = Stage(0.2, None)
    supervisor = Supervisor(stage, {"warm": False}, FAST)
    supervisor.start()
    supervisor.keep_warm()
    assert stage.all_on.wait(5)
    supervisor.close()
    assert [actor.told[0][1]["warm"] for actor in stage.actors] == [False, True]


@pytest.mark.parametrize("lives", [(None,), (0, None)])
def test_close_ends_whatever_state_it_is_in(lives):
    stage = Stage(*lives)
    supervisor = Supervisor(stage, {}, Timing(beat=0.01, first_backoff=60))
    supervisor.start()
    began = time.monotonic()
    supervisor.close()
    assert time.monotonic() - began < 5
    assert not supervisor.vitals.up
