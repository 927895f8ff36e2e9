"""The voices that ship: a fresh machine speaks at once.

`heart` is an English voice of 24 MB that comes with its runtime (hibari-tts); where the optional
py-nanotts is installed, five plain Pico voices add german, french, spanish, italian and british
english. This module is the engine and the English voice; `pico.py` holds the others.

Which voice speaks, by `request.speaker` and `request.language`:

| speaker              | language            | who speaks                                     |
|----------------------|---------------------|------------------------------------------------|
| none or `heart`      | none or english     | heart                                          |
| none or `heart`      | german ...          | the voice of that language: a text read by     |
|                      |                     | English rules is no German, and `heart` is     |
|                      |                     | what every plain client asks for               |
| none or `heart`      | one nobody speaks   | UnsupportedLanguage                            |
| a Pico voice         | none or its own     | that voice                                     |
| a Pico voice         | another             | UnsupportedLanguage: both were chosen, and one |
|                      |                     | of them must be a mistake                      |
"""

from __future__ import annotations

import importlib.metadata
import math
import threading
from collections.abc import Iterator

import numpy as np

from phonate.engine.base import (
    CancelToken,
    EngineInfo,
    FinishReason,
    Reference,
    Samples,
    Sink,
    Speaker,
    SynthesisRequest,
    SynthesisResult,
)
from phonate.engine.builtin.joins import faded_out, is_audible, join_ready
from phonate.engine.builtin.latin import latin_part
from phonate.engine.builtin.pico import pico_voices
from phonate.engine.builtin.pieces import Break, Piece, cut, fit
from phonate.engine.builtin.plain_text import plain_text
from phonate.engine.builtin.small_voice import SAMPLE_RATE, SmallVoice, Spoken
from phonate.engine.builtin.spoken_english import name_marks, spoken_english
from phonate.engine.check import check_request
from phonate.errors import (
    EngineFailure,
    InvalidRequest,
    OutputError,
    PhonateError,
    SetupError,
    UnsupportedLanguage,
    UnsupportedOperation,
)

FRAME_RATE = 12.5
MAX_TEXT_CHARS = 4096
"""Five minutes of speech, or half an hour of digits. Longer input is cut before it comes here."""
MAX_PIECE_CHARS = 160
"""About ten seconds of speech. The voice needs 0.1 s for it, and cannot be stopped meanwhile."""
MAX_PIECE_PHONEMES = 200
"""The same bound for text that says more than its length tells: digits, symbols."""
SLICE_S = 0.32
"""Longest chunk for a sink: the first can be encoded and sent while the next waits."""
WAY_OUT = (
    "A Qwen3-TTS model speaks ten languages and clones voices: `phonate pull 0.6b-base`, then "
    "start with `--model 0.6b-base`."
)
_PICO_HINT = "`pip install 'phonate[pico]'` adds german, french, spanish and italian. "
_CLOSING_MARKS = ".!?…,;:—"


class HeartVoice:
    """The English voice. Safe from several threads: its state is read-only once loaded."""

    speaker = Speaker("heart", "Heart", "english")

    def __init__(self, threads: int = 1) -> None:
        try:
            import hibari
            from hibari import dsp
        except ImportError as error:
            raise SetupError(
                f"The built-in voice is not installed ({error}): pip install hibari-tts"
            ) from error
        # "heart" is the one voice inside the package; any other name would be downloaded.
        self._tts = hibari.Hibari(voice="heart", threads=threads)
        self._dsp = dsp
        self._g2p_lock = threading.Lock()

    def wording(self, text: str) -> str:
        return spoken_english(text)

    def name_marks(self, text: str) -> str:
        return name_marks(text)

    def close(self) -> None:
        """Nothing to do: the model goes with the last reference."""

    def render(
        self, piece: Piece, rng: np.random.Generator, token: CancelToken, skipped: list[str]
    ) -> Iterator[Spoken]:
        parts = fit(self._phonemes(piece.text, skipped), MAX_PIECE_PHONEMES)
        if parts:
            parts[-1] = parts[-1]._replace(end=piece.end)
        for part in parts:
            ids = self._tts.ids(_closed(part))
            if len(ids) < 3:
                continue
            feeds = {"ids": np.array([ids], np.int64), "speed": np.ones(1, np.float32)}
            # [1, 601, F] spectra and [1, F] pitch, F frames of 12.5 ms.
            frames = [output[0] for output in self._tts.sess.run(None, feeds)]
            if token.is_set:  # between the model, two thirds of the time, and the sound
                return
            yield Spoken(self._dsp.synth(*frames, rng), part.end, len(ids))

    def _phonemes(self, text: str, skipped: list[str]) -> str:
        with self._g2p_lock:  # it loads itself on first use
            g2p = self._tts.g2p
        try:
            return str(g2p(text)).strip()
        except Exception:  # its word rules raise on rare shapes of numbers; lose a word, no more
            return " ".join(self._word_phonemes(word, skipped) for word in text.split()).strip()

    def _word_phonemes(self, word: str, skipped: list[str]) -> str:
        try:
            return str(self._tts.g2p(word))
        except Exception:
            skipped.append(word)
            return ""


def _closed(part: Piece) -> str:
    """Phonemes that end in a mark, which sets the melody: a cut between words is no full stop."""
    if part.text[-1] in _CLOSING_MARKS:
        return part.text
    return part.text + ("," if part.end in (Break.WORD, Break.CLAUSE) else ".")


class BuiltinEngine:
    """See the module's text. `max_batch`: how many calls may run at a time; each costs a core."""

    def __init__(self, *, threads: int = 1, max_batch: int = 1, pico: bool = True) -> None:
        voices: list[SmallVoice] = [HeartVoice(threads), *(pico_voices() if pico else ())]
        self._voices = {voice.speaker.id: voice for voice in voices}
        self._default = voices[0]
        self._closed = False
        speakers = tuple(voice.speaker for voice in voices)
        self._info = EngineInfo(
            name="builtin",
            model="builtin",
            device="cpu",
            sample_rate=SAMPLE_RATE,
            one_language_per_speaker=True,
            languages=tuple(dict.fromkeys(s.language for s in speakers if s.language)),
            speakers=speakers,
            default_speaker=self._default.speaker.id,
            frame_rate=FRAME_RATE,
            max_text_chars=MAX_TEXT_CHARS,
            max_batch=max_batch,
            details={
                "hibari-tts": importlib.metadata.version("hibari-tts"),
                "py-nanotts": _version("py-nanotts") if len(voices) > 1 else "not in use",
            },
        )

    @property
    def info(self) -> EngineInfo:
        return self._info

    def synthesize(
        self, request: SynthesisRequest, sink: Sink, token: CancelToken
    ) -> SynthesisResult:
        if self._closed:
            raise EngineFailure("The engine is closed.")
        check_request(self._info, request, self._way_out)
        voice = self._voice_for(request)
        words, skipped = self._words(request.text, voice)
        out = _Output(sink, token, request.max_new_tokens)
        # Seeds are signed 64-bit numbers; a generator takes unsigned ones.
        rng = np.random.default_rng(request.seed & 0xFFFF_FFFF_FFFF_FFFF)
        lost: list[str] = [skipped] if skipped else []
        n_tokens = _speak(voice, words, rng, out, lost)
        if out.finish_reason == "stop" and not out.audible:
            raise OutputError("The built-in voice made no audible sound for this text.")
        return SynthesisResult(
            finish_reason=out.finish_reason,
            n_frames=math.ceil(out.n_samples / SAMPLE_RATE * FRAME_RATE),
            n_text_tokens=n_tokens,
            seed=request.seed,
            skipped_text=" ".join(lost),
        )

    def unspoken(self, text: str, speaker: str | None) -> str:
        return unspoken(text, speaker)

    def extract_voice(self, audio: Samples, text: str | None) -> Reference:
        raise UnsupportedOperation(
            f"The built-in voice cannot clone a voice. {WAY_OUT}", param="voice"
        )

    def warm_up(self) -> None:
        self.synthesize(SynthesisRequest("Ready to speak."), lambda _: True, CancelToken())

    def close(self) -> None:
        self._closed = True
        for voice in self._voices.values():
            voice.close()

    @property
    def _way_out(self) -> str:
        return WAY_OUT if len(self._voices) > 1 else _PICO_HINT + WAY_OUT

    def _voice_for(self, request: SynthesisRequest) -> SmallVoice:
        voice = self._voices[request.speaker] if request.speaker else self._default
        language = request.language
        if language is None or voice.speaker.language == language:
            return voice
        able = [v for v in self._voices.values() if v.speaker.language == language]
        if voice is self._default and able:
            return able[0]
        names = ", ".join(v.speaker.id for v in able)
        raise UnsupportedLanguage(
            f"The voice {voice.speaker.id!r} speaks {voice.speaker.language}, not {language}. "
            f"Leave `language` out, or choose a voice that speaks it: {names}.",
            param="language",
        )

    def _words(self, text: str, voice: SmallVoice) -> tuple[str, str]:
        """(what the voice is to say, what it must leave out). Raises InvalidRequest when nothing
        is left to say."""
        plain = plain_text(text)
        latin = latin_part(plain)
        if any(char.isalnum() for char in latin.spoken):
            return voice.wording(latin.spoken), latin.skipped
        if latin.skipped:
            raise UnsupportedLanguage(
                f"The voice {voice.speaker.id!r} cannot speak the script of this text. The "
                f"built-in voices speak: {', '.join(self._info.languages)}. {self._way_out}",
                param="input",
            )
        # Rulers and bullets are gone from `plain`; alone they are all there is.
        names = voice.name_marks(plain if any(map(str.isalnum, text)) else text)
        if names:
            return names, ""
        raise InvalidRequest(
            "There is nothing to speak in this text: it has no letter, digit or mark, only blanks, "
            "emoji or tags. Send at least one word.",
            param="input",
        )


def unspoken(text: str, speaker: str | None) -> str:
    """What no voice here can read; a matter of the text alone."""
    return latin_part(plain_text(text)).skipped


class _Output:
    """Between the voice and the sink: slices, counts, and knows when to stop."""

    def __init__(self, sink: Sink, token: CancelToken, max_frames: int | None) -> None:
        self._sink = sink
        self.token = token
        self._room = math.inf if max_frames is None else max_frames * SAMPLE_RATE / FRAME_RATE
        self.n_samples = 0
        self.audible = False
        self.finish_reason: FinishReason = "stop"

    def put(self, audio: Samples) -> bool:
        """False when no more is wanted; `finish_reason` says why."""
        self.audible = self.audible or is_audible(audio, SAMPLE_RATE)
        step = round(SLICE_S * SAMPLE_RATE)
        for start in range(0, len(audio), step):
            if self.stopped():
                return False
            chunk = audio[start : start + step]
            if len(chunk) > self._room - self.n_samples:
                chunk = faded_out(chunk[: max(0, int(self._room) - self.n_samples)], SAMPLE_RATE)
                self.finish_reason = "length"
            self.n_samples += len(chunk)
            if len(chunk) and not self._sink(chunk):
                self.finish_reason = "cancelled"
            if self.finish_reason != "stop":
                return False
        return True

    def stopped(self) -> bool:
        if self.token.is_set:
            self.finish_reason = "cancelled"
        return self.finish_reason != "stop"


def _speak(
    voice: SmallVoice, words: str, rng: np.random.Generator, out: _Output, skipped: list[str]
) -> int:
    """Speak all pieces in order until `out` has enough; the number of text tokens read."""
    n_tokens = 0
    for piece in cut(words, MAX_PIECE_CHARS):
        if out.stopped():
            break
        for spoken in _rendered(voice, piece, rng, out.token, skipped):
            n_tokens += spoken.n_tokens
            if not out.put(join_ready(spoken.audio, spoken.end.value, SAMPLE_RATE)):
                break
    out.stopped()
    return n_tokens


def _rendered(
    voice: SmallVoice,
    piece: Piece,
    rng: np.random.Generator,
    token: CancelToken,
    skipped: list[str],
) -> Iterator[Spoken]:
    """`voice.render`, its failures in our words. A failing sink is none of them."""
    try:
        yield from voice.render(piece, rng, token, skipped)
    except PhonateError:
        raise
    except Exception as error:
        raise EngineFailure(f"The voice {voice.speaker.id!r} failed: {error}") from error


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
