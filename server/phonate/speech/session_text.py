"""What a client writes, as pieces to speak: the splitter of a session and what surrounds it."""

from __future__ import annotations

from phonate.errors import TooLarge
from phonate.speech.fragments import Clauses, End, Fragment, Splitter
from phonate.speech.pipeline import Piece
from phonate.speech.session_events import Config, Plan, SessionLimits
from phonate.speech.surrogates import SurrogateJoiner


class TextIntake:
    """feed() text and get the pieces that are certain; flush() for what is held. `clauses`:
    which fragments settle for a clause (another protocol may want it otherwise)."""

    def __init__(self, limits: SessionLimits) -> None:
        self.clauses: Clauses = "first"
        self._limits = limits
        self._config = Config()
        self._plan = Plan()
        self._n_bytes = 0
        self._text_at: float | None = None
        self._unspoken = ""
        """Text without anything to say; it goes with the next piece's text."""
        self._first = True
        """The next piece is the first since the session began or was flushed."""
        self._surrogates = SurrogateJoiner()
        self._splitter = self._new_splitter()

    @property
    def held(self) -> str:
        """Text that is in no piece yet."""
        return self._splitter.held

    def configure(self, config: Config, plan: Plan, now: float) -> list[Piece]:
        """From here on by this config. White space that is held stays."""
        self._config, self._plan = config, plan
        held = self._splitter.held
        self._splitter = self._new_splitter()
        return self._pieces(self._splitter.feed(held), None, now)

    def feed(self, text: str, segment: int | None, now: float, *, drop: bool) -> list[Piece]:
        """`drop`: it counts, and that is all. Raises TooLarge."""
        self._n_bytes += len(text.encode("utf-8", "surrogatepass"))
        if self._n_bytes > self._limits.max_text_bytes:
            raise TooLarge(
                f"A session takes at most {self._limits.max_text_bytes} bytes of text. "
                "Open a new one for more.",
                param="text",
                code="text_too_long",
            )
        text = self._surrogates.feed(text)
        if drop or not text:
            return []
        if self._text_at is None:
            self._text_at = now
        return self._pieces(self._splitter.feed(text), segment, now)

    def flush(self, segment: int | None, now: float, *, last: bool = False) -> list[Piece]:
        """What is held. `last`: white space too, since nothing comes after it."""
        fragments = self._splitter.feed(self._surrogates.finish())
        fragments += self._splitter.finish() if last else self._splitter.flush()
        pieces = self._pieces(fragments, segment, now)
        if last:
            self._splitter = self._new_splitter()
        self._begin_anew()
        return pieces

    def forget(self) -> None:
        """Drop what is held."""
        self._splitter = self._new_splitter()
        self._surrogates.finish()
        self._unspoken = ""
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._text_at = None
        self._first = True

    def _new_splitter(self) -> Splitter:
        lookahead = self._config.fragment_lookahead_words
        return Splitter(
            language=self._plan.language,
            lookahead_words=self._limits.lookahead_words if lookahead is None else lookahead,
            max_chars=self._plan.max_chars,
            clauses=self.clauses,
        )

    def _pieces(self, fragments: list[Fragment], segment: int | None, now: float) -> list[Piece]:
        pieces = []
        for fragment in fragments:
            text = self._unspoken + fragment.text
            self._unspoken = ""
            if not fragment.spoken:
                self._unspoken = text
                continue
            pieces.append(
                Piece(
                    text=text,
                    speech=fragment.speech,
                    ended=fragment.ended,
                    pause_s=self._pause_after(fragment),
                    plan=self._plan,
                    first=self._first,
                    text_at=now if self._text_at is None else self._text_at,
                    segment=segment,
                )
            )
            self._first = False
        return pieces

    def _pause_after(self, fragment: Fragment) -> float:
        config, limits = self._config, self._limits
        if fragment.closes is End.SENTENCE:
            chosen, default = config.sentence_silence_duration, limits.sentence_pause_s
        elif fragment.closes is End.CLAUSE:
            chosen, default = config.comma_silence_duration, limits.clause_pause_s
        else:
            return 0.0
        return default if chosen is None else chosen
