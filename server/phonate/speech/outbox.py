"""What waits to be sent to one client, in two lanes, and the audio clock.

The audio lane keeps everything that belongs to a place in the audio in order: PCM, and the events
about it. The fast lane is for answers that must not wait behind thirty seconds of audio (ready,
paused, resumed, cancelled, error). Holding the outbox stops it at the next PCM.

The clock counts samples given out for sending. Events that tell a position are built when their
turn comes, so dropping audio before them leaves no gap in the clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from phonate.speech.session_events import BYTES_PER_SAMPLE, SAMPLE_RATE, Event

FRAME_BYTES = 4800 * BYTES_PER_SAMPLE
"""Longest binary frame, 200 ms: so much may still follow a decision to stop."""

CHARS_PER_S = 15.0
"""The pace of speech, where a fragment's own length is not known yet."""


@dataclass(eq=False, slots=True)
class Voicing:
    """One fragment on its way to the client's ear."""

    index: int
    text: str
    segment: int | None = None
    made: int = 0
    """Samples the engine has made."""
    sent: int = 0
    start: int = 0
    """The clock at its first sample."""
    complete: bool = False
    """Nothing will be made any more, so `made` is its length."""

    @property
    def chars_heard(self) -> int:
        """Characters whose audio was given out, in proportion."""
        if self.complete:
            return len(self.text) * self.sent // self.made if self.made else 0
        return min(len(self.text), round(self.sent / SAMPLE_RATE * CHARS_PER_S))


@dataclass(frozen=True, slots=True)
class _Pcm:
    data: bytes
    segment: int | None
    voicing: Voicing | None
    """None: silence between fragments."""


@dataclass(frozen=True, slots=True)
class _Later:
    """An event that is built when its turn comes."""

    build: Callable[[], Event]
    segment: int | None


_Item: TypeAlias = _Pcm | _Later


def to_ms(samples: int) -> int:
    return round(samples * 1000 / SAMPLE_RATE)


class Outbox:
    """See the module's text."""

    def __init__(self) -> None:
        self._fast: deque[Event] = deque()
        self._audio: deque[_Item] = deque()
        self._chars = 0
        self._open: Voicing | None = None
        self.clock = 0
        """Samples given out since the session began."""
        self.buffered = 0
        """Samples that wait."""
        self.held = False

    def __len__(self) -> int:
        return len(self._fast) + len(self._audio)

    @property
    def answers(self) -> int:
        """How many answers wait in the fast lane."""
        return len(self._fast)

    @property
    def spoken_chars(self) -> int:
        """Characters whose audio was given out since the session began."""
        return self._chars + (self._open.chars_heard if self._open else 0)

    @property
    def spoken(self) -> Event:
        return {"spoken_ms": to_ms(self.clock), "spoken_chars": self.spoken_chars}

    def add_answer(self, event: Event) -> None:
        self._fast.append(event)

    def add_event(self, build: Callable[[], Event], segment: int | None) -> None:
        self._audio.append(_Later(build, segment))

    def add_silence(self, samples: int, segment: int | None) -> None:
        self._add(bytes(samples * BYTES_PER_SAMPLE), segment, None)

    def add_pcm(self, data: bytes, voicing: Voicing) -> None:
        """s16le, any length; goes out in frames of at most FRAME_BYTES."""
        voicing.made += len(data) // BYTES_PER_SAMPLE
        self._add(data, voicing.segment, voicing)

    def _add(self, data: bytes, segment: int | None, voicing: Voicing | None) -> None:
        self.buffered += len(data) // BYTES_PER_SAMPLE
        for at in range(0, len(data), FRAME_BYTES):
            self._audio.append(_Pcm(data[at : at + FRAME_BYTES], segment, voicing))

    def add_done(self, voicing: Voicing, build: Callable[[int, int], Event]) -> None:
        """After a fragment's last sample; `build` gets its start and end in milliseconds."""
        self._audio.append(_Later(self._done(voicing, build), voicing.segment))

    def _done(self, voicing: Voicing, build: Callable[[int, int], Event]) -> Callable[[], Event]:
        def finished() -> Event:
            start = voicing.start if voicing.sent else self.clock
            self._settle(voicing)
            return build(to_ms(start), to_ms(self.clock))

        return finished

    def pop(self) -> Event | bytes | None:
        """The next thing to send, or None when nothing may go now."""
        if self._fast:
            return self._fast.popleft()
        if not self._audio:
            return None
        head = self._audio[0]
        if isinstance(head, _Later):
            self._audio.popleft()
            return head.build()
        if self.held:
            return None
        self._audio.popleft()
        self._count(head)
        return head.data

    def clear(self) -> None:
        """Drop all audio and what was to be said about it."""
        self._audio.clear()
        self.buffered = 0
        if self._open is not None:
            self._settle(self._open)

    def drop_all(self) -> None:
        """Drop everything: nobody is there to get it."""
        self.clear()
        self._fast.clear()

    def drop_segment(
        self,
        segment: int,
        cut_off: Callable[[Voicing, int, int], Event],
        instead: Callable[[], Event],
    ) -> None:
        """Drop the audio of a segment. `cut_off` tells about the fragment of it that was partly
        heard, if one was, and `instead` takes the place of all the rest."""
        place: list[_Item] = []
        heard = self._open
        if heard is not None and heard.segment == segment:
            place.append(_Later(self._done(heard, partial(cut_off, heard)), segment))
        place.append(_Later(instead, segment))
        kept: deque[_Item] = deque()
        for item in self._audio:
            if item.segment != segment:
                kept.append(item)
                continue
            if isinstance(item, _Pcm):
                self.buffered -= len(item.data) // BYTES_PER_SAMPLE
            kept.extend(place)
            place = []
        kept.extend(place)
        self._audio = kept

    def _count(self, pcm: _Pcm) -> None:
        samples = len(pcm.data) // BYTES_PER_SAMPLE
        if pcm.voicing is not None:
            if not pcm.voicing.sent:
                pcm.voicing.start = self.clock
                self._open = pcm.voicing
            pcm.voicing.sent += samples
        self.buffered -= samples
        self.clock += samples

    def _settle(self, voicing: Voicing) -> None:
        self._chars += voicing.chars_heard
        if self._open is voicing:
            self._open = None
