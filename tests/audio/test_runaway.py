import numpy as np
import pytest
from hearing import SR, cuttings, voiced
from hypothesis import given, settings
from hypothesis import strategies as st

from phonate.audio.pcm import to_floats
from phonate.audio.runaway import LoopWatch, RunawayWatch, SilenceWatch, repeats_itself

# Innocent text that repeats something, or much of it.
INNOCENT = {
    "plain": (
        "The morning train was late again, so Anna bought a coffee and watched the pigeons. "
        "An old man beside her read yesterday's newspaper, slowly, line by line. "
        "She thought about the letter in her bag, and about what her sister would say."
    ),
    "no": "No no no no, I said no. No no no no no no. No!",
    "laughter": "Ha ha ha ha ha ha ha ha. Oh dear. Ha ha ha ha, stop it. Ha ha ha ha ha ha!",
    "counting": ", ".join(map(str, range(1, 31))) + ".",
    "refrain": "Row, row, row your boat, gently down the stream. Merrily, merrily, we all dream. "
    "Row, row, row your boat, gently to the shore. If you see a lion, do not forget to roar.",
    "list": "".join(
        f"Item {word} costs ten dollars. "
        for word in ("one", "two", "three", "four", "five", "six", "seven", "eight")
    ),
}


@pytest.fixture(scope="module")
def speech():
    """float32 [n] of each innocent text, by the voice that ships."""
    hibari = pytest.importorskip("hibari", reason="the built-in voice is not installed")
    speak = hibari.Hibari()
    return {name: speak(text, seed=1) for name, text in INNOCENT.items()}


def when(watch, x, step=1920):
    """Seconds of audio after which the watch found something; None if it never did."""
    for start in range(0, len(x), step):
        if watch.feed(x[start : start + step]):
            return (start + step) / SR
    return None


@pytest.mark.parametrize("name", INNOCENT)
def test_real_speech_is_left_alone(speech, name):
    watch = RunawayWatch(SR)
    assert when(watch, speech[name]) is None
    assert watch.found is None


def test_all_of_it_in_a_row_is_left_alone(speech):
    assert when(RunawayWatch(SR), np.concatenate(list(speech.values()))) is None


@pytest.mark.parametrize("period_s", [0.32, 0.8, 1.2, 2.4])
@pytest.mark.parametrize("flaw", ["exact", "noisy", "uneven", "off the grid"])
def test_a_loop_in_real_speech_is_found(speech, period_s, flaw):
    x = speech["plain"]
    rng = np.random.default_rng(0)
    n = round(period_s * SR) + (333 if flaw == "off the grid" else 0)
    begin = 2 * SR
    rounds = [x[begin : begin + n]] * (int(16 / period_s) + 1)
    if flaw == "uneven":
        rounds = [
            part * gain
            for part, gain in zip(rounds, rng.uniform(0.7, 1.3, len(rounds)), strict=True)
        ]
    looped = np.concatenate([x[:begin], *rounds])
    if flaw == "noisy":
        looped = looped + rng.normal(0, 0.1 * looped.std(), len(looped)).astype(np.float32)
    watch = RunawayWatch(SR)
    found = when(watch, looped)
    assert watch.found == "repetition"
    assert 2 + 6.4 < found < 2 + 8 + 4 * period_s + 1.5


def test_the_period_is_told():
    watch = LoopWatch(SR)
    part = to_floats(voiced(SR * 12 // 10))
    watch.feed(np.tile(part, 12))
    assert watch.found
    assert watch.period_s == pytest.approx(1.2, abs=0.05)


def test_a_loop_shorter_than_the_limit_passes(speech):
    x = speech["plain"]
    part = x[2 * SR : 3 * SR]
    assert when(LoopWatch(SR), np.concatenate([x[: 2 * SR], *[part] * 6, x[3 * SR :]])) is None
    assert when(LoopWatch(SR, seconds=3), np.concatenate([part] * 6)) is not None


@pytest.mark.parametrize("sample_rate", [8000, 16000, 24000, 48000])
def test_a_hum_is_a_loop_at_any_rate(sample_rate):
    hum = 0.1 * np.sin(2 * np.pi * 150 / sample_rate * np.arange(10 * sample_rate))
    assert LoopWatch(sample_rate).feed(hum.astype(np.float32))


def test_pauses_are_not_alike():
    """Mostly silence, with different sounds now and then: nothing repeats."""
    x = np.zeros(40 * SR, np.float32)
    for k in range(20):
        x[2 * k * SR : 2 * k * SR + SR] = np.random.default_rng(k).normal(0, 0.1, SR) * np.sin(
            np.arange(SR) * (k + 1) / 2000
        )
    x[:: SR * 2] = 0
    assert when(LoopWatch(SR), x * (np.arange(len(x)) // (SR // 4) % 5 == 0)) is None


@pytest.mark.parametrize("hiss", [0.0, 0.001, 0.0025])
def test_endless_silence_is_found(hiss):
    rng = np.random.default_rng(0)
    x = rng.normal(0, hiss, 20 * SR).astype(np.float32) if hiss else np.zeros(20 * SR, np.float32)
    x[: 2 * SR] = to_floats(voiced(2 * SR))
    watch = RunawayWatch(SR)
    assert when(watch, x) == pytest.approx(8.0, abs=0.1)
    assert watch.found == "silence"


def test_silence_is_measured_against_the_voice():
    x = np.concatenate((to_floats(voiced(SR)) * 2, to_floats(voiced(8 * SR)) * 0.02))
    assert when(SilenceWatch(SR), x) == pytest.approx(7.0, abs=0.1)
    assert when(SilenceWatch(SR), x[SR:] * 20) is None


def test_a_long_pause_is_no_silence_for_ever():
    x = np.concatenate([to_floats(voiced(SR)), np.zeros(5 * SR, np.float32)] * 3)
    assert when(SilenceWatch(SR), x) is None
    assert when(SilenceWatch(SR, seconds=4), x) == pytest.approx(5.0, abs=0.1)


def test_off():
    watch = RunawayWatch(SR, silence_s=0, repetition_s=0)
    assert watch.feed(np.zeros(60 * SR, np.float32)) is None
    assert watch.feed(np.tile(to_floats(voiced(SR)), 30)) is None


def test_what_was_found_first_stays():
    watch = RunawayWatch(SR, silence_s=1)
    assert watch.feed(np.zeros(2 * SR, np.float32)) == "silence"
    assert watch.feed(np.tile(to_floats(voiced(SR)), 30)) == "silence"


def test_no_numbers():
    watch = RunawayWatch(SR)
    x = np.full(SR, np.nan, np.float32)
    x[::2] = np.inf
    watch.feed(x)
    watch.feed(np.zeros(0, np.float32))


@given(cuttings(3 * SR), st.integers(0, 100))
@settings(max_examples=20, deadline=None)
def test_any_cutting_finds_the_same(cuts, seed):
    quiet = np.random.default_rng(seed).integers(0, 2 * SR)
    x = np.tile(to_floats(voiced(SR // 4, seed=seed)), 12)
    x[quiet : quiet + SR] = 0
    whole, cut = LoopWatch(SR, seconds=1), LoopWatch(SR, seconds=1)
    silent, silent_cut = SilenceWatch(SR, seconds=0.9), SilenceWatch(SR, seconds=0.9)
    whole.feed(x), silent.feed(x)
    for piece in np.split(x, sorted(cuts)):
        cut.feed(piece), silent_cut.feed(piece)
    assert (cut.found, cut.period_s) == (whole.found, whole.period_s)
    assert (silent_cut.found, silent_cut.silent_s) == (silent.found, silent.silent_s)


@pytest.mark.parametrize(
    ("text", "repeats"),
    [
        ("", False),
        ("No.", False),
        ("No, not now, no.", False),
        ("No no.", False),
        ("No, no - NO!", True),
        ("He said: ha ha ha ha.", True),
        ("I am here. I am here. I am here.", True),
        ("I am here. You are here. I am there.", False),
        ("one two one two one two", True),
        ("one two one two one", False),
        ("哈哈哈哈", True),
        ("他说哈哈哈哈，然后走了", True),
        ("今天天气很好，我们去公园", False),
        ("aaaaaaaaaaaa", False),
        (" ".join(map(str, range(200))), False),
        ("1 1 1", True),
        (INNOCENT["plain"] * 3, False),  # 43 words: longer than any loop that is watched for.
    ],
)
def test_text_that_repeats_itself(text, repeats):
    assert repeats_itself(text) is repeats


def test_long_text_is_quick():
    import time

    begin = time.process_time()
    repeats_itself("word " * 2 + " ".join(map(str, range(4000))))
    assert time.process_time() - begin < 0.5
