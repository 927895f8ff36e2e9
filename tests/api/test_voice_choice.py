"""Where fragments of a stream go, and how long the first one waits for more words."""

from __future__ import annotations

import pytest

from phonate.api.voice_choice import FragmentPlan, FragmentRouter
from phonate.engine.base import EngineInfo
from phonate.engine.scripted import DEFAULT_INFO
from phonate.errors import UnsupportedLanguage
from phonate.speech.language import Candidate
from phonate.speech.request import SpeechRequest
from phonate.speech.routes import Routes
from phonate.speech.routing import LanguageRouting

ENGLISH = "This one is in English for sure."
GERMAN = "Das hier ist gewiss auf Deutsch."
UNSURE = "Guten Morgen, hello,"


class Identifier:
    """Sure about two sentences, and a little for German otherwise."""

    score = 0.45

    def candidates(self, text: str) -> tuple[Candidate, ...]:
        if text == ENGLISH:
            return (Candidate("english", 0.99), Candidate("german", 0.01))
        if text == GERMAN:
            return (Candidate("german", 0.99), Candidate("english", 0.01))
        return (Candidate("german", self.score), Candidate("english", self.score - 0.1))


def router(
    routes: dict[str, dict[str, str]], info: EngineInfo = DEFAULT_INFO, score: float = 0.45
) -> FragmentRouter:
    identifier = Identifier()
    identifier.score = score
    routing = LanguageRouting(info, Routes(routes), identifier)  # type: ignore[arg-type]
    return FragmentRouter(routing, SpeechRequest("-", "tone"), "tone")


ROUTES = {"tone": {"german": "ton"}}


def test_a_certain_language_leads_to_its_voice() -> None:
    route = router(ROUTES)(GERMAN)
    assert (route.language, route.voice, route.wait_s) == ("german", "ton", 0.0)
    assert isinstance(route.plan, FragmentPlan)
    assert route.plan.routed is not None
    assert route.plan.routed.voice == "ton"


def test_an_uncertain_first_fragment_waits_as_long_as_the_margin_says() -> None:
    assert router(ROUTES)(UNSURE).wait_s == pytest.approx(0.040 + 0.080 * 0.5)


def test_without_a_candidate_in_sight_it_does_not_wait() -> None:
    assert router(ROUTES, score=0.3)(UNSURE).wait_s == 0


def test_without_routes_nothing_is_waited_for() -> None:
    assert router({})(UNSURE).wait_s == 0


def test_an_uncertain_fragment_stays_with_the_last_certain_language() -> None:
    to = router(ROUTES)
    to(GERMAN)
    route = to(UNSURE)
    assert (route.language, route.voice, route.wait_s) == ("german", "ton", 0.0)


def test_a_refusal_goes_with_the_plan() -> None:
    to = router({})

    def refuse(*args: object) -> None:
        raise UnsupportedLanguage("Not here.")

    to._routing.route = refuse  # type: ignore[method-assign, assignment]
    assert isinstance(to("x").plan.refused, UnsupportedLanguage)
