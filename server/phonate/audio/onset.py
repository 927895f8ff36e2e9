"""Cut the silence before the first sound of a fragment, without a click.

    |........ silence ........|.. 15 ms kept, faded in ..|speech ...
                              ^ cut                      ^ first loud 5 ms window

Windows are counted from the fragment's first sample. A fragment that is never loud comes out whole
at the end: whether silence is an answer is not decided here.
"""

from __future__ import annotations

import numpy as np

from phonate.audio.pcm import NO_FLOATS, Floats, finite, samples_in

THRESHOLD = 0.005
WINDOW_MS = 5.0
KEEP_MS = 15.0
FADE_MS = 15.0


class OnsetTrim:
    """float32 [n] -> float32 [n - cut]. Held back: everything before the first loud window."""

    def __init__(
        self,
        sample_rate: int,
        *,
        threshold: float = THRESHOLD,
        window_ms: float = WINDOW_MS,
        keep_ms: float = KEEP_MS,
        fade_ms: float = FADE_MS,
        enabled: bool = True,
    ) -> None:
        """A window is loud when mean |x| > threshold. A fade only follows a cut."""
        self._threshold = threshold
        self._window = max(1, samples_in(window_ms, sample_rate))
        self._keep = samples_in(keep_ms, sample_rate)
        self._fade = samples_in(fade_ms, sample_rate)
        self._waiting = enabled
        self._held: list[Floats] = []
        self._checked = 0
        """Samples at the start of what is held that are known to be quiet."""
        self._ramp = NO_FLOATS
        """Gains still to be applied, to the next samples."""

    def feed(self, x: Floats) -> Floats:
        x = finite(x)
        if not self._waiting:
            return self._faded(x)
        if not len(x):
            return NO_FLOATS
        self._held.append(x)
        held = np.concatenate(self._held)
        self._held = [held]
        return self._release(held, self._first_loud(held))

    def finish(self) -> Floats:
        if not self._waiting:
            return NO_FLOATS
        held = np.concatenate(self._held) if self._held else NO_FLOATS
        # The last, shorter window: what is missing from it counts as silence.
        loud = float(np.abs(held[self._checked :]).sum()) / self._window > self._threshold
        self._held = []
        if loud:
            return self._release(held, self._checked)
        self._waiting = False
        return held

    def _first_loud(self, held: Floats) -> int | None:
        """Start of the first loud whole window among those not looked at yet."""
        n = (len(held) - self._checked) // self._window
        windows = held[self._checked : self._checked + n * self._window].reshape(n, self._window)
        loud = np.flatnonzero(np.abs(windows).mean(axis=1) > self._threshold)
        if len(loud):
            return self._checked + int(loud[0]) * self._window
        self._checked += n * self._window
        return None

    def _release(self, held: Floats, onset: int | None) -> Floats:
        if onset is None:
            return NO_FLOATS
        self._waiting = False
        self._held = []
        cut = max(0, onset - self._keep)
        if cut and self._fade:
            self._ramp = np.linspace(0, 1, self._fade, endpoint=False, dtype=np.float32)
        return self._faded(held[cut:])

    def _faded(self, x: Floats) -> Floats:
        n = min(len(self._ramp), len(x))
        if n:
            x = x.copy()
            x[:n] *= self._ramp[:n]
            self._ramp = self._ramp[n:]
        return x
