"""From an engine's float chunks to the blocks that leave, for one utterance.

    each fragment:  onset trim -> fade-out -> int16 -> pause after it
    the utterance:  silence gate -> startup buffer -> speed -> sample rate

Runs on the engine's thread, one fragment after the other; only `finish` is called from elsewhere,
when no fragment is being made.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phonate.audio.fade import FadeOut
from phonate.audio.gate import SilenceGate
from phonate.audio.onset import OnsetTrim
from phonate.audio.pcm import Pcm, to_pcm
from phonate.audio.resample import Resampler
from phonate.audio.speed import Speed
from phonate.audio.startup import StartupBuffer
from phonate.engine.base import Samples
from phonate.speech.fragments import End, Fragment


@dataclass(frozen=True, slots=True)
class SoundOptions:
    """The options of the group "Sound" in `settings`."""

    trim_silence: bool = True
    silence_threshold: float = 0.005
    pre_roll_ms: float = 15.0
    fade_in_ms: float = 15.0
    fade_out_after_ms: float = 1000.0
    startup_buffer_ms: float = 160.0
    clause_pause_s: float = 0.15
    sentence_pause_s: float = 0.30

    def pause_after(self, fragment: Fragment) -> float:
        """Seconds of silence that belong after `fragment` when another one follows."""
        pauses = {End.SENTENCE: self.sentence_pause_s, End.CLAUSE: self.clause_pause_s}
        return pauses.get(fragment.closes, 0.0) if fragment.closes else 0.0


class Shaping:
    """The utterance's part. `source_rate`: Hz of the engine; blocks leave at `sample_rate`."""

    def __init__(
        self, sound: SoundOptions, source_rate: int, *, sample_rate: int, speed: float
    ) -> None:
        self.sound = sound
        self.source_rate = source_rate
        self._gate = SilenceGate(source_rate)
        self._startup = StartupBuffer(source_rate, hold_ms=sound.startup_buffer_ms)
        self._speed = Speed(source_rate, speed)
        self._resampler = Resampler(source_rate, sample_rate)

    @property
    def audible(self) -> bool:
        return self._gate.audible

    def fragment(self, pause_s: float) -> FragmentShaper:
        """A shaper for the next fragment, with `pause_s` seconds of silence after it."""
        return FragmentShaper(self, pause_s)

    def feed(self, pcm: Pcm) -> Pcm:
        return self._resampler.feed(self._speed.feed(self._startup.feed(self._gate.feed(pcm))))

    def finish(self) -> Pcm:
        """What is still held back; nothing if the utterance was never audible."""
        resampled, sped = self._resampler, self._speed
        rest = np.concatenate((self._startup.feed(self._gate.finish()), self._startup.finish()))
        rest = np.concatenate((sped.feed(rest), sped.finish()))
        return np.concatenate((resampled.feed(rest), resampled.finish()))


class FragmentShaper:
    """One fragment's part; see the module's text."""

    def __init__(self, shaping: Shaping, pause_s: float) -> None:
        sound, rate = shaping.sound, shaping.source_rate
        self._shaping = shaping
        self._onset = OnsetTrim(
            rate,
            threshold=sound.silence_threshold,
            keep_ms=sound.pre_roll_ms,
            fade_ms=sound.fade_in_ms,
            enabled=sound.trim_silence,
        )
        self._fade = FadeOut(rate, after_ms=sound.fade_out_after_ms)
        self._pause = np.zeros(round(pause_s * rate), np.int16)

    def feed(self, samples: Samples) -> Pcm:
        return self._shaping.feed(to_pcm(self._fade.feed(self._onset.feed(samples))))

    def finish(self) -> Pcm:
        rest = np.concatenate((self._fade.feed(self._onset.finish()), self._fade.finish()))
        return self._shaping.feed(np.concatenate((to_pcm(rest), self._pause)))
