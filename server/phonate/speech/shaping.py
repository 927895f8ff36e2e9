"""What happens to an engine's chunks before they leave: `audio.shape`, pauses, and the watches.

Runs on the engine's thread, one fragment after the other; only `Shaping.finish` is called from
elsewhere, when no fragment is being made.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from phonate.audio.gate import SilenceGate
from phonate.audio.pcm import NO_PCM, Pcm
from phonate.audio.runaway import Runaway, RunawayWatch, repeats_itself
from phonate.audio.shape import FragmentShaper, Sound, UtteranceShaper
from phonate.engine.base import Samples
from phonate.speech.fragments import End, Fragment

LOOP_S = 8.0
"""Seconds of near-exact repetition after which a model is taken to be stuck."""


@dataclass(frozen=True, slots=True)
class SoundOptions:
    """The options of the group "Sound" in `settings`."""

    sound: Sound = field(default_factory=Sound)
    clause_pause_s: float = 0.15
    sentence_pause_s: float = 0.30

    def pause_after(self, fragment: Fragment) -> float:
        """Seconds of silence that belong after `fragment` when another one follows."""
        pauses = {End.SENTENCE: self.sentence_pause_s, End.CLAUSE: self.clause_pause_s}
        return pauses.get(fragment.closes, 0.0) if fragment.closes else 0.0


class Shaping:
    """One utterance. `source_rate`: Hz of the engine; blocks leave at `sample_rate`. `watched`:
    whether the engine can run away (a model that samples can, the built-in voice cannot).
    `max_samples`: of one fragment, at `source_rate`."""

    def __init__(
        self,
        options: SoundOptions,
        source_rate: int,
        *,
        sample_rate: int,
        speed: float,
        watched: bool,
        max_samples: int,
    ) -> None:
        self.max_samples = max_samples
        self.options = options
        self.source_rate = source_rate
        self.watched = watched
        self._tail = UtteranceShaper(
            source_rate, out_rate=sample_rate, speed=speed, sound=options.sound
        )

    @property
    def audible(self) -> bool:
        return self._tail.audible

    def fragment(self, text: str, pause_s: float, *, hold: bool) -> ShapedFragment:
        """The shaper of the next fragment, with `pause_s` seconds of silence after it. `hold`:
        nothing leaves before `release`, so that an attempt can still be thrown away."""
        return ShapedFragment(self, text, pause_s, hold)

    def feed(self, pcm: Pcm) -> Pcm:
        return self._tail.feed(pcm)

    def finish(self) -> Pcm:
        """What is still held back; nothing if the utterance was never audible."""
        return self._tail.finish()


class ShapedFragment:
    """One attempt at one fragment. `audible` and `runaway` tell how it went."""

    def __init__(self, shaping: Shaping, text: str, pause_s: float, hold: bool) -> None:
        rate = shaping.source_rate
        self._shaping = shaping
        self._shaper = FragmentShaper(rate, shaping.options.sound)
        self._ear = SilenceGate(rate, threshold=shaping.options.sound.gate_threshold)
        self._pause = np.zeros(round(pause_s * rate), np.int16)
        # A text that repeats itself makes audio that does, rightly.
        loops = 0.0 if repeats_itself(text) else LOOP_S
        self._watch = RunawayWatch(rate, repetition_s=loops) if shaping.watched else None
        self._held: list[Pcm] | None = [] if hold else None
        self._n_samples = 0
        self.runaway: Runaway | None = None
        self.too_long = False

    @property
    def audible(self) -> bool:
        return self._ear.audible

    @property
    def enough(self) -> bool:
        """The engine should stop: it runs away, or has filled what one answer may hold."""
        return self.runaway is not None or self.too_long

    def feed(self, samples: Samples) -> Pcm:
        self._n_samples += len(samples)
        self.too_long = self._n_samples > self._shaping.max_samples
        if self._watch is not None:
            self.runaway = self._watch.feed(samples)
        pcm = self._shaper.feed(samples)
        self._ear.feed(pcm)
        return self._pass_on(pcm)

    def finish(self) -> Pcm:
        pcm = self._shaper.finish()
        self._ear.feed(pcm)
        self._ear.finish()
        return self._pass_on(np.concatenate((pcm, self._pause)))

    def release(self) -> Pcm:
        """What was held; nothing without `hold`."""
        held, self._held = self._held, None
        return self._shaping.feed(np.concatenate(held)) if held else NO_PCM

    def _pass_on(self, pcm: Pcm) -> Pcm:
        if self._held is None:
            return self._shaping.feed(pcm)
        self._held.append(pcm)
        return NO_PCM
