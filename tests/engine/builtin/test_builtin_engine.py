"""The voice that ships: it always speaks, always ends, and can always be stopped."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from phonate.engine.base import CancelToken, Engine, Reference, SynthesisRequest
from phonate.engine.builtin import engine as builtin
from phonate.engine.builtin.engine import BuiltinEngine
from phonate.engine.builtin.joins import is_audible
from phonate.errors import (
    EngineFailure,
    InvalidRequest,
    OutputError,
    PhonateError,
    UnsupportedLanguage,
    UnsupportedOperation,
    VoiceNotFound,
)

RATE = 24_000
PARAGRAPH = "The quick brown fox jumps over the lazy dog and runs away into the dark forest. " * 50


@pytest.fixture(scope="module")
def engine():
    engine = BuiltinEngine(pico=False)
    engine.warm_up()
    yield engine
    engine.close()


def speak(engine, text, token=None, **fields):
    chunks = []

    def sink(chunk):
        chunks.append(chunk)
        return True

    result = engine.synthesize(SynthesisRequest(text, **fields), sink, token or CancelToken())
    return result, np.concatenate([np.zeros(0, np.float32), *chunks])


def phonemes_of(engine, text):
    """What the voice reads, in its alphabet: the engine's own path up to the model."""
    voice = engine._voices["heart"]
    words, _ = engine._words(text, voice)
    return voice._phonemes(words, [])


def test_is_an_engine(engine):
    as_engine: Engine = engine
    info = as_engine.info
    assert (info.name, info.sample_rate, info.default_speaker) == ("builtin", RATE, "heart")
    assert info.languages == ("english",)
    assert not info.can_clone
    assert not info.takes_sampling


def test_speaks(engine):
    result, audio = speak(engine, "Hello there, this is a test.", seed=7)
    assert result.finish_reason == "stop"
    assert result.seed == 7
    assert result.skipped_text == ""
    assert 1.2 < len(audio) / RATE < 3
    assert result.n_frames == np.ceil(len(audio) / RATE * 12.5)
    assert result.n_text_tokens > 10
    assert audio.dtype == np.float32
    assert np.abs(audio).max() <= 1
    assert is_audible(audio, RATE)


def test_a_second_sentence_adds_its_length(engine):
    one = speak(engine, "This is the first sentence.")[1]
    two = speak(engine, "Here is the second sentence.")[1]
    both = speak(engine, "This is the first sentence. Here is the second sentence.")[1]
    assert len(both) / RATE == pytest.approx((len(one) + len(two)) / RATE + 0.27, abs=0.05)


@pytest.mark.parametrize(
    ("text", "phonemes"),
    [
        ("$5.3 billion", "fˈIv pYnt θɹˈi bˈɪljən dˈɑləɹz"),
        (
            "It will be $100 after 9:30PM.",
            "ˌɪt wɪl bi wˈʌn hˈʌndɹəd dˈɑləɹz ˈæftəɹ nˈIn θˈɜɹTi pˌiˈɛm",
        ),
        ("button, kitten, written", "bˈʌtn, kˈɪtn, ɹˈɪtn"),
        ("www.example.com", "dˈʌbᵊlju dˈʌbᵊlju dˈʌbᵊlju dˈɑt ɪɡzˈæmpəl dˈɑt kˈɑm"),
        ("bob@example.com", "bˈɑb æt ɪɡzˈæmpəl dˈɑt kˈɑm"),
        ("[tomato](/həlˈO/)", "təmˈATO"),
        ("Hello<|im_end|>", "həlˈO"),
        (".", "dˈɑt"),
        ("...", "dˈɑt dˈɑt dˈɑt"),
        ("5€", "fˈIv jˈʊɹOz"),
        ("007", "zˈɪɹO zˈɪɹO sˈɛvən"),
    ],
)
def test_reads_as_people_do(engine, text, phonemes):
    assert phonemes_of(engine, text).rstrip(".") == phonemes


@pytest.mark.parametrize(
    "text",
    [
        ".",
        "..",
        "...",
        "?",
        "!",
        ",",
        "-",
        "—",
        "(",
        "=====",
        "***",
        "a",
        "1",
        "%",
        "Hm.",
        "OK",
        "1。",
        "button",
        "kitten",
        "written",
        "1次",
    ],
)
def test_the_shortest_texts_are_short_and_audible(engine, text):
    result, audio = speak(engine, text)
    assert result.finish_reason == "stop"
    assert 0.1 < len(audio) / RATE < 3
    assert is_audible(audio, RATE)


@pytest.mark.parametrize(
    "text", ["", "   ", "\n\n", "\u200b", "😀", "👨‍👩‍👧 🎉", "<break time='1s'/>", "[pause]"]
)
def test_nothing_to_speak_is_a_clear_400(engine, text):
    with pytest.raises(InvalidRequest, match="nothing to speak") as caught:
        speak(engine, text)
    assert caught.value.param == "input"


@pytest.mark.parametrize(
    "text", ["日本語", "你好。", "Привет, мир!", "مرحبا", "नमस्ते", "สวัสดี", "한국어", "λόγος"]
)
def test_another_script_is_a_400_with_a_way_out(engine, text):
    with pytest.raises(UnsupportedLanguage) as caught:
        speak(engine, text)
    assert caught.value.param == "input"
    for part in ("english", "phonate pull 0.6b-base", "--model"):
        assert part in caught.value.message


def test_mixed_text_is_spoken_in_part_and_the_rest_told(engine):
    result, audio = speak(engine, "Hello 世界 and good morning, Мир!")
    assert result.skipped_text == "世界 Мир"
    np.testing.assert_array_equal(audio, speak(engine, "Hello and good morning, !")[1])


@pytest.mark.parametrize(
    "text",
    [
        'Wait <break time="800ms"/> here.',
        "Wait [pause:1s] here.",
        "\x1b[31mWait\x1b[0m here.",
        "Wait\u200b here.",
        "Wa\0it \ud800here.",
        "**Wait** here. 😀",
        "<|im_start|>Wait<|im_end|> here.",
    ],
)
def test_what_is_not_for_a_listener_changes_nothing(engine, text):
    np.testing.assert_array_equal(speak(engine, text)[1], speak(engine, "Wait here.")[1])


def test_two_thousand_characters_without_a_mark(engine):
    words = ("alpha bravo charlie delta echo foxtrot golf hotel india juliet kilo lima " * 30)[
        :2000
    ]
    result, audio = speak(engine, words)
    assert result.finish_reason == "stop"
    # Twelve of these words take 5 to 6 seconds; silence would show as a low level.
    assert 100 < len(audio) / RATE < 200
    seconds = np.abs(audio[: len(audio) // RATE * RATE]).reshape(-1, RATE).mean(axis=1)
    assert seconds.min() > 0.005


def test_the_model_never_sees_more_than_its_bound(engine, monkeypatch):
    seen = []
    tts = engine._voices["heart"]._tts
    ids = tts.ids
    monkeypatch.setattr(tts, "ids", lambda phonemes: seen.append(len(phonemes)) or ids(phonemes))
    for text in ("1 " * 150, "% " * 80, "w" * 100, "a-" * 100, "word " * 50, PARAGRAPH[:400]):
        speak(engine, text)
    assert max(seen) <= builtin.MAX_PIECE_PHONEMES + 1


NASTY = ["a-", "1.", "1", "1,", "x", "(", "- ", "a'", "a_", "Ab", "€", "%", "[", "<", "0", "$1,"]
NASTY += ["\n", "a\n", "1-", "a.", "&", "#", "@", "a@", "/", "://", "\x1b[", "](/", "é", "٣"]


@pytest.mark.parametrize("unit", NASTY)
def test_starts_at_once_or_refuses_whatever_the_text(engine, unit):
    """The first chunk, or a 400, within a time that no more than linear work can meet: the plain
    runtime needs five minutes for 800 characters of "a-" and raises on 67 digits."""
    started = time.perf_counter()
    text = (unit * 4096)[:4096]
    try:
        outcome = engine.synthesize(SynthesisRequest(text), lambda _: False, CancelToken())
    except InvalidRequest as error:
        outcome = error
    assert getattr(outcome, "param", "input") == "input"
    assert getattr(outcome, "finish_reason", "cancelled") == "cancelled"
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize("text", ["1" * 100_000, "1." * 50_000])
def test_too_long_is_refused_at_once(engine, text):
    started = time.perf_counter()
    with pytest.raises(InvalidRequest, match="4096") as caught:
        speak(engine, text)
    assert caught.value.param == "input"
    assert time.perf_counter() - started < 0.5


def test_every_stretch_ends_in_a_mark(engine, monkeypatch):
    """It sets the melody: level where a sentence goes on, falling where it ends."""
    seen = []
    tts = engine._voices["heart"]._tts
    ids = tts.ids
    monkeypatch.setattr(tts, "ids", lambda phonemes: seen.append(phonemes[-1]) or ids(phonemes))
    speak(engine, "word " * 40 + "end\n\nWhy? Yes")
    assert seen == [",", ".", "?", "."]


def test_all_digits_of_a_long_number_are_spoken(engine):
    for digits in ("7" * 66, "7" * 67, "7" * 200):
        assert phonemes_of(engine, digits).count("sˈɛvən") == len(digits)


def test_same_seed_same_audio_bit_for_bit(engine):
    text = "Same seed, same audio. In two sentences."
    first = speak(engine, text, seed=5)[1]
    np.testing.assert_array_equal(first, speak(engine, text, seed=5)[1])
    assert not np.array_equal(first, speak(engine, text, seed=6)[1])
    np.testing.assert_array_equal(first, speak(BuiltinEngine(pico=False), text, seed=5)[1])
    for seed in (-1, -(2**63), 2**63 - 1):
        assert speak(engine, "Yes.", seed=seed)[0].seed == seed


def test_threads_do_not_disturb_each_other(engine):
    texts = [f"This is the sentence number {n}, and it has a second part." for n in range(8)]
    alone = [speak(engine, text, seed=3)[1] for text in texts]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda text: speak(engine, text, seed=3)[1], texts))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


def test_cancel_from_another_thread_stops_it(engine):
    token = CancelToken()
    after = []
    first = threading.Event()

    def sink(chunk):
        if token.is_set:
            after.append(chunk)
        first.set()
        return True

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(engine.synthesize, SynthesisRequest(PARAGRAPH[:4000]), sink, token)
        assert first.wait(10)
        token.set("test")
        set_at = time.perf_counter()
        result = future.result(10)
        took = time.perf_counter() - set_at
    assert result.finish_reason == "cancelled"
    # At most the chunk that was on its way. Measured 20 to 120 ms on an idle core (one model run
    # of ten seconds of speech); the bound allows for a busy machine, 65 s of CPU stay unspent.
    assert len(after) <= 1
    assert took < 1.5


def test_cancelled_before_it_starts_it_says_nothing(engine):
    token = CancelToken()
    token.set("test")
    result, audio = speak(engine, "Hello.", token)
    assert result.finish_reason == "cancelled"
    assert not audio.size


def test_a_refusing_sink_is_a_cancel_and_leaves_no_trace(engine):
    fresh = speak(engine, "Hello again.", seed=1)[1]
    chunks = []
    result = engine.synthesize(
        SynthesisRequest(PARAGRAPH[:4000]), lambda c: bool(chunks.append(c)), CancelToken()
    )
    assert result.finish_reason == "cancelled"
    assert len(chunks) == 1
    np.testing.assert_array_equal(speak(engine, "Hello again.", seed=1)[1], fresh)


def test_chunks_are_small_enough_to_send(engine):
    sizes = []
    engine.synthesize(
        SynthesisRequest(PARAGRAPH[:300]), lambda c: sizes.append(len(c)) or True, CancelToken()
    )
    assert max(sizes) <= builtin.SLICE_S * RATE


def test_the_token_budget_is_kept(engine):
    full = speak(engine, "Hello there, this is a test.")[1]
    result, audio = speak(engine, "Hello there, this is a test.", max_new_tokens=10)
    assert result.finish_reason == "length"
    assert result.n_frames == 10
    assert len(audio) == 10 * 1920
    assert audio[-1] == 0
    np.testing.assert_array_equal(audio[:-120], full[: len(audio) - 120])
    assert (
        speak(engine, "Hello there, this is a test.", max_new_tokens=10_000)[0].finish_reason
        == "stop"
    )


def test_pauses_are_natural_and_joins_do_not_click(engine):
    text = "First comes this. Then comes that.\n\nA new paragraph begins."
    _, audio = speak(engine, text)
    silent = np.flatnonzero(audio == 0)
    runs = [
        run for run in np.split(silent, np.flatnonzero(np.diff(silent) > 1) + 1) if len(run) > 240
    ]
    inner = [run for run in runs if run[-1] < len(audio) - 1]
    assert [len(run) / RATE for run in inner] == pytest.approx([0.33, 0.61], abs=0.01)
    for run in inner:
        around = audio[run[0] - 20 : run[-1] + 20]
        assert np.abs(np.diff(around)).max() < 0.003


def test_refuses_what_it_cannot(engine):
    cases = [
        (VoiceNotFound, "voice", {"speaker": "nobody"}),
        (UnsupportedLanguage, "language", {"language": "german"}),
        (UnsupportedOperation, "voice", {"reference": Reference(np.zeros(8, np.float32))}),
        (UnsupportedOperation, "instructions", {"instructions": "whisper"}),
    ]
    for kind, param, fields in cases:
        with pytest.raises(kind) as caught:
            speak(engine, "Hello.", **fields)
        assert caught.value.param == param
    with pytest.raises(UnsupportedLanguage, match="phonate pull"):
        speak(engine, "Hallo.", language="german")
    with pytest.raises(UnsupportedOperation, match="phonate pull"):
        engine.extract_voice(np.zeros(48_000, np.float32), None)
    assert speak(engine, "Hello.", language="english", speaker="heart")[1].size


def test_a_word_its_reader_chokes_on_costs_that_word_only(engine, monkeypatch):
    tts = engine._voices["heart"]._tts
    g2p = tts.g2p

    def choking(text):
        if "bad" in text:
            raise IndexError("list index out of range")
        return g2p(text)

    monkeypatch.setattr(tts, "_g2p", choking)
    result, audio = speak(engine, "One bad apple.")
    assert result.skipped_text == "bad"
    assert is_audible(audio, RATE)


def test_a_silent_or_broken_model_is_no_success(engine, monkeypatch):
    dsp = engine._voices["heart"]._dsp

    def broken(*_):
        raise RuntimeError("no memory")

    monkeypatch.setattr(dsp, "synth", lambda *_: np.zeros(RATE, np.float32))
    with pytest.raises(OutputError):
        speak(engine, "Hello.")
    monkeypatch.setattr(dsp, "synth", lambda *_: np.full(RATE, np.nan, np.float32))
    with pytest.raises(OutputError):
        speak(engine, "Hello.")
    monkeypatch.setattr(dsp, "synth", broken)
    with pytest.raises(EngineFailure, match="no memory"):
        speak(engine, "Hello.")


def test_an_error_of_the_sink_is_not_ours(engine):
    def sink(_):
        raise KeyError("bridge")

    with pytest.raises(KeyError):
        engine.synthesize(SynthesisRequest("Hello."), sink, CancelToken())


def test_closed_is_closed():
    engine = BuiltinEngine(pico=False)
    engine.close()
    engine.close()
    with pytest.raises(PhonateError, match="closed"):
        speak(engine, "Hello.")
