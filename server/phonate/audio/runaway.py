"""Notice speech that will not end: silence for ever, or the same words again and again.

A model that samples its audio can miss its own end. The token budget stops it at last; these
watches stop it after seconds. They look at what an engine makes, change nothing, and never take
back: feed pieces, ask what was found.

Repetition is near-exact repetition, as of a model caught in a cycle of codec frames. Text that says
the same thing over and over makes such audio rightly: `repeats_itself` tells, and then there is
nothing to watch for.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from phonate.audio.pcm import NO_FLOATS, Floats, finite, samples_in

Runaway: TypeAlias = Literal["silence", "repetition"]


class _Blocks:
    """Cuts a stream into windows of fixed places, whatever the pieces were."""

    def __init__(self, window: int, hop: int) -> None:
        self._window, self._hop = window, hop
        self._held: Floats = NO_FLOATS

    def feed(self, x: Floats) -> npt.NDArray[np.float32]:
        """[n] -> [windows, window]"""
        x = np.concatenate((self._held, np.clip(finite(x), -1, 1)))
        n = max(0, (len(x) - self._window) // self._hop + 1)
        self._held = x[n * self._hop :]
        if not n:
            return np.zeros((0, self._window), np.float32)
        return np.lib.stride_tricks.sliding_window_view(x, self._window)[:: self._hop][:n]


class SilenceWatch:
    """Found when `seconds` in a row are near silence: below -50 dBFS, or 30 dB below the loudest so
    far (a model's silence is not digital). Counted from the start, too."""

    _BLOCK_MS = 20.0
    _QUIET_RMS = 0.003
    _BELOW_LOUDEST = 0.03

    def __init__(self, sample_rate: int, *, seconds: float = 6.0) -> None:
        """6 s: no pause of a reader's is that long. 0 switches the watch off."""
        block = samples_in(self._BLOCK_MS, sample_rate)
        self._blocks = _Blocks(block, block)
        self._limit = seconds
        self._loudest = 0.0
        self.silent_s = 0.0
        """How long it has been silent at the end of what was fed."""
        self.found = False

    def feed(self, x: Floats) -> bool:
        for rms in np.sqrt(np.square(self._blocks.feed(x)).mean(axis=1)):
            self._loudest = max(self._loudest, float(rms))
            quiet = rms < max(self._QUIET_RMS, self._BELOW_LOUDEST * self._loudest)
            self.silent_s = self.silent_s + self._BLOCK_MS / 1000 if quiet else 0.0
            self.found |= 0 < self._limit <= self.silent_s + 1e-9
        return self.found


class LoopWatch:
    """Found when the sound repeats with one period of 0.2..8 s, over `seconds` and four rounds.

    Every 40 ms gives a vector of band levels (log, mean taken off, length 1). Its product with that
    of L frames earlier is their likeness; the mean likeness over the window is the score of L.
    Measured with the built-in voice: plain text, counting and verses with refrains score up to
    0.70, eight sentences that differ in one word 0.84; a loop 1.00, with noise at -20 dB or rounds
    of different loudness 0.98, with its tempo changing by 3 % 0.92 (not beyond periods of 3 s).
    What never changes, like a hum or a hiss, is a loop too. Silent frames have no say.
    """

    _HOP_MS = 40.0
    _SHORTEST, _LONGEST = 5, 200
    """Periods, in frames."""
    _ROUNDS = 3
    _N_BANDS = 20
    _LOW_HZ, _HIGH_HZ = 40.0, 7200.0
    _FLOOR = 5e-6
    _AUDIBLE_RMS = 0.003
    _MIN_AUDIBLE = 0.3

    def __init__(self, sample_rate: int, *, seconds: float = 8.0, likeness: float = 0.92) -> None:
        """seconds 0 switches the watch off."""
        hop = samples_in(self._HOP_MS, sample_rate)
        self._blocks = _Blocks(2 * hop, hop)
        self._taper = np.hanning(2 * hop).astype(np.float32)
        hz_per_bin = sample_rate / (2 * hop)
        high = min(self._HIGH_HZ, 0.45 * sample_rate) / hz_per_bin
        edges = np.geomspace(self._LOW_HZ / hz_per_bin, high, self._N_BANDS + 1)
        self._edges = np.unique(np.round(edges).astype(int))
        self._likeness = likeness if seconds > 0 else np.inf

        self._lags = np.arange(self._SHORTEST, self._LONGEST + 1)
        wanted = round(seconds * 1000 / self._HOP_MS)
        self._windows = np.maximum(wanted, self._ROUNDS * self._lags)
        """Frames over which each lag is judged."""
        depth = int(self._windows.max())
        self._past = np.zeros((self._LONGEST, len(self._edges) - 1), np.float32)
        """The last vectors, newest first; zero where silent or before the start."""
        self._rows = np.zeros((2, depth, len(self._lags)), np.float32)
        """Ring of (likeness, both audible) per frame and lag: what leaves a window is taken off."""
        self._sums = np.zeros((2, len(self._lags)))
        self._n = 0
        self.found = False
        self.period_s = 0.0
        """Of the loop that was found."""

    def feed(self, x: Floats) -> bool:
        for vector in self._vectors(self._blocks.feed(x)):
            self._step(vector)
        return self.found

    def _vectors(self, windows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """[frames, window] -> [frames, bands], unit length or zero."""
        if not len(windows):
            return np.zeros((0, self._past.shape[1]), np.float32)
        power = np.square(np.abs(np.fft.rfft(windows * self._taper, axis=1)))
        bands = np.add.reduceat(power, self._edges[:-1], axis=1) / windows.shape[1]
        levels = np.log(bands + self._FLOOR)
        levels -= levels.mean(axis=1, keepdims=True)
        levels /= np.maximum(np.linalg.norm(levels, axis=1, keepdims=True), 1e-6)
        audible = np.sqrt(np.square(windows).mean(axis=1)) >= self._AUDIBLE_RMS
        vectors: npt.NDArray[np.float32] = (levels * audible[:, np.newaxis]).astype(np.float32)
        return vectors

    def _step(self, vector: npt.NDArray[np.float32]) -> None:
        past = self._past[self._lags - 1]
        new = np.stack((past @ vector, past.any(axis=1) & bool(vector.any())))
        depth = self._rows.shape[1]
        columns = np.arange(len(self._lags))
        self._sums += new - self._rows[:, (self._n - self._windows) % depth, columns]
        self._rows[:, self._n % depth] = new
        self._past = np.roll(self._past, 1, axis=0)
        self._past[0] = vector
        self._n += 1

        likeness, audible = self._sums
        heard = audible > self._MIN_AUDIBLE * self._windows
        looped = heard & (self._n >= self._windows + self._lags)
        looped &= likeness >= self._likeness * np.maximum(audible, 1)
        if not self.found and looped.any():
            self.found = True
            self.period_s = float(self._lags[np.argmax(looped)]) * self._HOP_MS / 1000


class RunawayWatch:
    """Both watches over one synthesis. feed() says what was found first, or None."""

    def __init__(
        self, sample_rate: int, *, silence_s: float = 6.0, repetition_s: float = 8.0
    ) -> None:
        """0 switches either off."""
        self._silence = SilenceWatch(sample_rate, seconds=silence_s)
        self._loop = LoopWatch(sample_rate, seconds=repetition_s)
        self.found: Runaway | None = None

    def feed(self, x: Floats) -> Runaway | None:
        silence, loop = self._silence.feed(x), self._loop.feed(x)
        if self.found is None and (silence or loop):
            self.found = "silence" if silence else "repetition"
        return self.found


_WORD = re.compile(r"[^\W_]+")
_MAX_PERIOD_WORDS = 40


def repeats_itself(text: str, *, rounds: int = 3) -> bool:
    """Whether some words, up to 40 of them, come `rounds` times in a row: its audio is a loop
    without being at fault. Punctuation and case do not matter. Where words are not spaced (Chinese,
    Japanese, Thai), the characters are compared.

    >>> repeats_itself("No, no, no!"), repeats_itself("No, not now."), repeats_itself("哈哈哈哈")
    (True, False, True)
    """
    folded = text.casefold()
    units = _WORD.findall(folded)
    return _has_run(units, rounds) or _has_run(_unspaced(units), rounds)


def _unspaced(words: list[str]) -> list[str]:
    return [unit for word in words for unit in (word if ord(word[0]) >= 0x0E00 else [word])]


def _has_run(units: list[str], rounds: int) -> bool:
    for period in range(1, min(_MAX_PERIOD_WORDS, len(units) // rounds) + 1):
        same = 0
        for unit, earlier in zip(units[period:], units, strict=False):
            same = same + 1 if unit == earlier else 0
            if same >= period * (rounds - 1):
                return True
    return False
