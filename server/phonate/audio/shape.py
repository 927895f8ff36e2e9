"""The small objects, composed: one chain per fragment, one per utterance.

    FragmentShaper:   OnsetTrim -> FadeOut -> to_pcm                       float32 -> int16
    UtteranceShaper:  SilenceGate -> Speed -> StartupBuffer -> Resampler     int16 -> int16

A fragment is what one `synthesize` call makes, an utterance one answer, of one or more fragments.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phonate.audio import fade, gate, onset, startup
from phonate.audio.pcm import Floats, Pcm, to_pcm
from phonate.audio.resample import Resampler
from phonate.audio.speed import Speed


@dataclass(frozen=True, slots=True)
class Sound:
    """Everything about the sound that a server's owner can set. Times in ms."""

    trim_silence: bool = True
    onset_threshold: float = onset.THRESHOLD
    """Mean |x| of a window above which it is speech, in -1..1."""
    onset_window_ms: float = onset.WINDOW_MS
    onset_keep_ms: float = onset.KEEP_MS
    fade_in_ms: float = onset.FADE_MS
    fade_out_after_ms: float = fade.AFTER_MS
    fade_out_ms: float = fade.FADE_MS
    startup_ms: float = startup.HOLD_MS
    gate_threshold: float = gate.THRESHOLD
    """Mean |int16| of a block from which an utterance is audible; 0 lets silence pass."""


DEFAULT_SOUND = Sound()


class FragmentShaper:
    """float32 [n] as an engine makes it -> int16 [about n]: trimmed, faded, clipped, rounded."""

    def __init__(self, sample_rate: int, sound: Sound = DEFAULT_SOUND) -> None:
        self._onset = onset.OnsetTrim(
            sample_rate,
            threshold=sound.onset_threshold,
            window_ms=sound.onset_window_ms,
            keep_ms=sound.onset_keep_ms,
            fade_ms=sound.fade_in_ms,
            enabled=sound.trim_silence,
        )
        self._fade = fade.FadeOut(
            sample_rate, after_ms=sound.fade_out_after_ms, fade_ms=sound.fade_out_ms
        )

    def feed(self, x: Floats) -> Pcm:
        return to_pcm(self._fade.feed(self._onset.feed(x)))

    def finish(self) -> Pcm:
        last = self._fade.feed(self._onset.finish())
        return to_pcm(np.concatenate((last, self._fade.finish())))


class UtteranceShaper:
    """int16 [n] at `sample_rate` -> int16 [about n / speed] at `out_rate`, for an encoder.

    Nothing comes out before the utterance is audible and `startup_ms` of what the listener will
    hear are there. If `audible` is still False after finish(), nothing has come out and the caller
    raises OutputError.
    """

    def __init__(
        self,
        sample_rate: int,
        *,
        out_rate: int | None = None,
        speed: float = 1.0,
        sound: Sound = DEFAULT_SOUND,
    ) -> None:
        self._gate = gate.SilenceGate(sample_rate, threshold=sound.gate_threshold)
        self._stages = (
            self._gate,
            Speed(sample_rate, speed),
            startup.StartupBuffer(sample_rate, hold_ms=sound.startup_ms),
            Resampler(sample_rate, out_rate or sample_rate),
        )

    @property
    def audible(self) -> bool:
        return self._gate.audible

    def feed(self, pcm: Pcm) -> Pcm:
        for stage in self._stages:
            pcm = stage.feed(pcm)
        return pcm

    def finish(self) -> Pcm:
        pcm = np.zeros(0, np.int16)
        for stage in self._stages:
            pcm = np.concatenate((stage.feed(pcm), stage.finish()))
        return pcm
