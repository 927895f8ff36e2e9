"""The Pico voices, and how the built-in engine hands texts to them."""

from __future__ import annotations

import importlib.util
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from phonate.engine.base import CancelToken, SynthesisRequest
from phonate.engine.builtin.engine import BuiltinEngine
from phonate.engine.builtin.joins import is_audible
from phonate.engine.builtin.pico import pico_voices
from phonate.errors import InvalidRequest, UnsupportedLanguage

installed = pytest.mark.skipif(
    importlib.util.find_spec("py_nanotts") is None,
    reason="py-nanotts is optional, and has no wheel for macOS on arm64",
)
SAYINGS = {
    "pico-de": ("german", "Guten Morgen, wie geht es Ihnen heute?"),
    "pico-fr": ("french", "Bonjour, comment allez-vous aujourd'hui ?"),
    "pico-es": ("spanish", "Buenos días, ¿cómo está usted?"),
    "pico-it": ("italian", "Buongiorno, come sta oggi?"),
    "pico-gb": ("english", "Good morning, how are you today?"),
}


@pytest.fixture(scope="module")
def engine():
    engine = BuiltinEngine()
    yield engine
    engine.close()


def speak(engine, text, token=None, **fields):
    chunks = []

    def sink(chunk):
        chunks.append(chunk)
        return True

    result = engine.synthesize(SynthesisRequest(text, **fields), sink, token or CancelToken())
    return result, np.concatenate([np.zeros(0, np.float32), *chunks])


@installed
def test_five_voices_in_four_more_languages(engine):
    assert engine.info.languages == ("english", "german", "french", "spanish", "italian")
    assert [speaker.id for speaker in engine.info.speakers] == ["heart", *SAYINGS]
    assert engine.info.default_speaker == "heart"


@installed
@pytest.mark.parametrize("speaker", SAYINGS)
def test_each_speaks(engine, speaker):
    language, text = SAYINGS[speaker]
    result, audio = speak(engine, text, speaker=speaker, language=language)
    assert result.finish_reason == "stop"
    assert result.n_text_tokens == len(text)
    assert 1.2 < len(audio) / 24_000 < 4
    assert is_audible(audio, 24_000)
    assert np.abs(audio).max() < 0.6
    spectrum = np.abs(np.fft.rfft(audio))
    above = spectrum[round(8_200 / 12_000 * len(spectrum)) :]
    assert above.max() < spectrum.max() / 1000, "resampled from 16 kHz without images"


@installed
def test_the_language_chooses_the_voice(engine):
    text = "Guten Morgen."
    german = speak(engine, text, speaker="pico-de")[1]
    for fields in (
        {"language": "german"},
        {"language": "german", "speaker": "heart"},
        {"language": "german", "speaker": "pico-de"},
    ):
        np.testing.assert_array_equal(speak(engine, text, **fields)[1], german)
    english = speak(engine, text, language="english")[1]
    np.testing.assert_array_equal(english, speak(engine, text, speaker="heart")[1])
    with pytest.raises(UnsupportedLanguage, match="pico-fr") as caught:
        speak(engine, text, speaker="pico-de", language="french")
    assert caught.value.param == "language"
    with pytest.raises(UnsupportedLanguage, match="phonate pull") as caught:
        speak(engine, text, language="chinese")
    assert "german" in caught.value.message


@installed
@pytest.mark.parametrize("text", ["Привет", "日本語", "مرحبا"])
def test_another_script_is_refused(engine, text):
    with pytest.raises(UnsupportedLanguage) as caught:
        speak(engine, text, speaker="pico-de")
    assert caught.value.param == "input"


@installed
def test_mixed_text_is_spoken_in_part(engine):
    result, audio = speak(engine, "Guten Morgen, Мир.", speaker="pico-de")
    assert result.skipped_text == "Мир"
    assert is_audible(audio, 24_000)


@installed
@pytest.mark.parametrize("speaker", SAYINGS)
@pytest.mark.parametrize("text", [".", "...", "?", "(", "€", "&", "1", "a", "ß", "ł", "É"])
def test_the_shortest_texts_are_audible(engine, speaker, text):
    result, audio = speak(engine, text, speaker=speaker)
    assert result.finish_reason == "stop"
    assert 0.05 < len(audio) / 24_000 < 5
    assert is_audible(audio, 24_000)


@installed
@pytest.mark.parametrize(
    "text",
    [
        "Guten\0 Morgen.",
        "Guten \ud800Morgen.",
        "Guten <break time='1s'/> Morgen.",
        "Guten Morgen. 😀",
    ],
)
def test_what_is_not_for_a_listener_changes_nothing(engine, text):
    np.testing.assert_array_equal(
        speak(engine, text, speaker="pico-de")[1],
        speak(engine, "Guten Morgen.", speaker="pico-de")[1],
    )


@installed
def test_no_order_in_the_text_reaches_the_runtime(engine, tmp_path):
    target = tmp_path / "made.wav"
    text = f'Hallo <genfile file="{target}">Welt</genfile> <play file=/etc/passwd< 3 > 2.'
    assert "<" not in engine._voices["pico-de"].wording(text)
    speak(engine, text, speaker="pico-de")
    assert not target.exists()


@installed
def test_the_words_of_an_address_are_the_language_s_own(engine):
    words = engine._voices["pico-de"].wording("Siehe www.beispiel.de/a-b am 3.5.2024.")
    assert " ".join(words.split()) == (
        "Siehe w w w Punkt beispiel Punkt D E Schrägstrich a Bindestrich b am 3.5.2024."
    )


@installed
@pytest.mark.parametrize("unit", ["1", "a-", "1.", "x", "(", "é", ", ", "1/2/"])
def test_starts_or_refuses_whatever_the_text(engine, unit):
    text = (unit * 1000)[:1000]
    try:
        outcome = engine.synthesize(
            SynthesisRequest(text, speaker="pico-de"), lambda _: False, CancelToken()
        )
    except InvalidRequest as error:
        outcome = error
    assert getattr(outcome, "finish_reason", "cancelled") == "cancelled"
    assert getattr(outcome, "param", "input") == "input"


@installed
def test_several_threads_share_one_process(engine):
    texts = [f"Das ist Satz Nummer {n}." for n in range(6)]
    alone = [speak(engine, text, speaker="pico-de")[1] for text in texts]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda text: speak(engine, text, speaker="pico-de")[1], texts))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


@installed
def test_close_ends_the_process():
    engine = BuiltinEngine()
    speak(engine, "Hallo.", speaker="pico-de")
    process = engine._voices["pico-de"]._process._process
    engine.close()
    assert process.poll() is not None


def test_without_the_package_there_are_no_such_voices(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert pico_voices() == []
    engine = BuiltinEngine()
    assert engine.info.languages == ("english",)
    with pytest.raises(UnsupportedLanguage, match="phonate\\[pico\\]"):
        speak(engine, "Hallo.", language="german")
