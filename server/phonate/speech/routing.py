"""From a text and the voice that was asked for to the language and the voice that speak it."""

from __future__ import annotations

from dataclasses import dataclass

from phonate.engine.base import EngineInfo
from phonate.errors import SetupError, UnsupportedLanguage
from phonate.speech.language import Decision, Identifier, Source, decide
from phonate.speech.language_names import CANONICAL, canonical
from phonate.speech.routes import Routes

SURE = 0.80
"""Score from which a text is refused because its language is not spoken here."""


@dataclass(frozen=True, slots=True)
class Routed:
    """`language` None leaves the choice to the engine; `voice` is the name to look up."""

    language: str | None
    voice: str | None
    decision: Decision


class LanguageRouting:
    """See the module's text. `default`: the language of requests that name none (`--lang`);
    `fallback`: what a text of uncertain language is taken for."""

    def __init__(
        self,
        info: EngineInfo,
        routes: Routes,
        identifier: Identifier | None,
        *,
        default: str | None = None,
        fallback: str = "english",
    ) -> None:
        self._info = info
        self.routes = routes
        self._identifier = identifier
        self._default = canonical(default, "--lang")
        known = canonical(fallback, "--language-fallback")
        if known is None:
            raise SetupError("--language-fallback auto: name a language.")
        self.fallback = known if known in info.languages else (*info.languages, known)[0]

    @property
    def languages(self) -> tuple[str, ...]:
        return self._info.languages

    def explicit(self, name: str | None) -> str | None:
        """The canonical language that a client named, or the server's default; None is auto.
        Raises UnsupportedLanguage for one that nobody speaks here."""
        language = canonical(name) or self._default
        if language is not None and language not in self._info.languages:
            raise self._unsupported(f"language: {language}", "language")
        return language

    def identify(
        self, text: str, languages: tuple[str, ...] | None = None, fallback: str | None = None
    ) -> Decision:
        known = languages or self._info.languages
        return decide(text, self._identifier, known, fallback or self.fallback)

    def route(
        self, text: str, base: str | None, language: str | None, fallback: str | None = None
    ) -> Routed:
        """`base`: the name that the client gave and routes may be filed under; `language`: from
        `explicit`. Raises UnsupportedLanguage for a text that is surely in another language, where
        speakers know one language each."""
        if language is not None:
            decision = Decision(language, Source.EXPLICIT)
        else:
            decision = self.identify(text, fallback=fallback)
            self._refuse_other_languages(text, decision)
        if base is None or not self.routes.has(base):
            # Without a route the fallback is nobody's wish: the engine may know better.
            certain = decision.language if decision.accepted else None
            return Routed(certain, base, decision)
        voice = self.routes.voice_for(base, decision.language)
        return Routed(decision.language, voice, decision)

    def _refuse_other_languages(self, text: str, decision: Decision) -> None:
        if not self._info.one_language_per_speaker or decision.accepted:
            return
        wider = self.identify(text, CANONICAL, self.fallback)
        sure = wider.accepted and wider.candidates[0].score >= SURE
        if sure and wider.language not in self._info.languages:
            raise self._unsupported(f"This text is {wider.language}, which", "input")

    def _unsupported(self, what: str, param: str) -> UnsupportedLanguage:
        way_out = (
            "" if self._info.name == "qwen"
            else " A Qwen3-TTS model speaks ten languages: `phonate pull 0.6b-base`, then start "
            "with `--model 0.6b-base`."
        )  # fmt: skip
        return UnsupportedLanguage(
            f"{what} is not spoken by {self._info.model!r}. It speaks: "
            f"{', '.join(self._info.languages)}.{way_out}",
            param=param,
        )
