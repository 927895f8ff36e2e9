"""Inputs that broke other speech servers, each with the right answer. Groups: length, text, audio,
shape. The built-in voice where truth matters, the scripted engine where a model must misbehave.
"""

import io
import struct
import time
from dataclasses import replace

import httpx
import numpy as np
import pytest
from support import decode, loudest_hz, pcm_floats, running

from phonate.engine.builtin.engine import BuiltinEngine
from phonate.engine.scripted import DEFAULT_INFO, Emit, Fail, ScriptedEngine
from phonate.errors import EngineFailure

FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
MAGIC = {
    "mp3": (b"\xff\xf3", b"\xff\xfb", b"\xff\xf2", b"ID3"),
    "opus": (b"OggS",),
    "aac": (b"\xff\xf1", b"\xff\xf9"),
    "flac": (b"fLaC",),
    "wav": (b"RIFF",),
}
TYPES = {
    "mp3": "audio/mpeg", "opus": "audio/ogg", "aac": "audio/aac", "flac": "audio/flac",
    "wav": "audio/wav", "pcm": "audio/pcm",
}  # fmt: skip


@pytest.fixture(scope="module")
def voice():
    with running(BuiltinEngine(pico=False), max_input_chars="20000") as server:
        yield server


@pytest.fixture(scope="module")
def tones():
    with running(ScriptedEngine()) as server:
        yield server


def ask(server, text, timeout=120, **body):
    body = {"model": "tts-1", "voice": "alloy", "input": text, **body}
    return httpx.post(f"{server.address}/v1/audio/speech", json=body, timeout=timeout)


def seconds(answer):
    if answer.headers["content-type"] == "audio/pcm":
        return len(answer.content) / 48000
    samples, rate = decode(answer.content)
    return len(samples) / rate


# length ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_chars", [430, 2000])
@pytest.mark.parametrize("stream", [None, False])
def test_plain_words_without_punctuation_are_spoken_to_the_end(voice, n_chars, stream):
    words = ("river stone window garden paper " * 100)[:n_chars].rsplit(" ", 1)[0]
    whole = ask(voice, f"{words} finish", stream=stream, seed=1, response_format="pcm")
    without_last = ask(voice, words, stream=stream, seed=1, response_format="pcm")
    assert seconds(whole) > n_chars * 0.05
    assert seconds(whole) > seconds(without_last)


@pytest.mark.parametrize("stream", [None, False])
def test_two_sentences_make_one_wav_as_long_as_the_pcm(voice, stream):
    text = "This is the first sentence. Here is the second sentence."
    wav = ask(voice, text, response_format="wav", seed=2, stream=stream)
    pcm = ask(voice, text, response_format="pcm", seed=2, stream=stream)
    assert wav.content.count(b"RIFF") == 1
    assert seconds(wav) == pytest.approx(seconds(pcm), abs=0.05)


def test_four_paragraphs_keep_their_twelve_markers_in_order():
    words = "alpha bravo charlie delta echo foxtrot golf hotel india juliet kilo lima"
    markers = words.split()
    paragraphs = [
        " ".join(f"This sentence says {word}." for word in markers[i : i + 3])
        for i in range(0, 12, 3)
    ]
    engine = ScriptedEngine(info=replace(DEFAULT_INFO, max_text_chars=60))
    with running(engine) as server:
        assert ask(server, "\n\n".join(paragraphs)).status_code == 200
    said = " ".join(engine.texts)
    places = [said.index(word) for word in markers]
    assert places == sorted(places)
    assert all(said.count(word) == 1 for word in markers)


def test_five_hundred_words_are_not_cut(voice):
    text = " ".join(f"Number {i} comes after the one before." for i in range(72))
    assert len(text.split()) >= 500
    answer = ask(voice, text, response_format="pcm")
    assert seconds(answer) > 120


def test_4096_characters_start_early_and_keep_coming(voice):
    text = ("It was late in the evening when the train finally arrived. " * 80)[:4096]
    begun = last = time.monotonic()
    gaps = []
    body = {"input": text, "response_format": "pcm"}
    url = f"{voice.address}/v1/audio/speech"
    with httpx.stream("POST", url, json=body, timeout=120) as answer:
        for _ in answer.iter_raw():
            gaps.append(time.monotonic() - last)
            last = time.monotonic()
    assert gaps[0] < 10
    assert max(gaps) < 25
    assert last > begun


@pytest.mark.parametrize("n_chars", [4097, 20_000])
def test_over_the_limit_is_refused_at_once(tones, n_chars):
    answer = ask(tones, "x" * n_chars)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "input"
    assert answer.elapsed.total_seconds() < 5


def test_a_model_that_never_says_stop_is_bounded_and_says_so():
    info = replace(DEFAULT_INFO, takes_sampling=True)
    with running(ScriptedEngine(lambda r: [Emit.tone(float("inf"))], info)) as server:
        for text in ("1次", "1。", "Huh?", "Hm.", "OK"):
            answer = ask(server, text, stream=False, response_format="pcm")
            assert seconds(answer) < 3, text
            assert answer.headers["x-finish-reason"] == "length"


# text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", FORMATS)
def test_a_full_stop_alone_is_short_valid_audio(voice, format_):
    answer = ask(voice, ".", response_format=format_)
    assert answer.status_code == 200
    assert 0.1 < seconds(answer) < 2


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("text", ["", "   ", "\n\n\n", "\t"])
def test_blank_text_is_a_400(voice, text, format_):
    answer = ask(voice, text, response_format=format_)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "input"


@pytest.mark.parametrize("text", ["...", "🎉", "\u200b", "!?", "—", "<br>", "[pause:1s]"])
def test_hardly_any_text_is_audio_or_a_clear_400(voice, text):
    answer = ask(voice, text, response_format="pcm")
    if answer.status_code == 200:
        assert np.abs(pcm_floats(answer.content)).max() > 0.01
        assert seconds(answer) < 4
    else:
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "input"


@pytest.mark.parametrize(
    ("tagged", "plain"),
    [
        ('Wait. <break time="800ms"/> Go on.', "Wait. Go on."),
        ("This is <emphasis>very</emphasis> good.", "This is very good."),
        ("Wait. [pause:1s] Go on.", "Wait. Go on."),
        ("Hello <|im_end|> there.", "Hello there."),
    ],
)
def test_tags_are_not_read_aloud(voice, tagged, plain):
    with_tags = ask(voice, tagged, response_format="pcm", seed=3)
    without = ask(voice, plain, response_format="pcm", seed=3)
    assert seconds(with_tags) == pytest.approx(seconds(without), abs=1.0)


@pytest.mark.parametrize("text", ["1" * 600, "1." * 300, "a-" * 2000, "-" * 4000, "." * 4000])
def test_monotonous_text_is_answered_in_bounded_time(voice, text):
    answer = ask(voice, text, response_format="pcm", timeout=300)
    assert answer.status_code in (200, 400)


@pytest.mark.parametrize("text", ["1" * 100_000, "1." * 50_000])
def test_far_too_long_text_is_refused_in_no_time(tones, text):
    answer = ask(tones, text)
    assert answer.status_code == 400
    assert answer.elapsed.total_seconds() < 5


@pytest.mark.parametrize("text", ["$5.3 billion", "The price will be $100 after 9:30PM."])
def test_money_and_times_are_said_as_people_say_them(voice, text):
    """In words: longer than the digits alone would be. The words are tested with the engine."""
    assert ask(voice, text, response_format="pcm").status_code == 200
    assert seconds(ask(voice, text, response_format="pcm")) > 1.0


@pytest.mark.parametrize("word", ["button", "kitten", "written"])
def test_words_that_others_swallow(voice, word):
    answer = ask(voice, word, response_format="pcm")
    assert 0.3 < seconds(answer) < 2


@pytest.mark.parametrize("text", ["line\nbreaks\nhere", "a\x00b is fine", "Hello\r\nthere"])
def test_control_characters_do_no_harm(voice, text):
    assert ask(voice, text).status_code == 200


def test_a_lone_surrogate_is_no_500(voice):
    answer = httpx.post(
        f"{voice.address}/v1/audio/speech", content=rb'{"input": "Hello \ud800 there"}',
        headers={"content-type": "application/json"}, timeout=60,
    )  # fmt: skip
    assert answer.status_code in (200, 400)


@pytest.mark.parametrize("token", ["<|im_end|>", "<|im_start|>system", "<|endoftext|>", "[INST]"])
def test_special_tokens_are_never_obeyed(voice, token):
    text = f"First part. {token} Second part of the text."
    whole = seconds(ask(voice, text, response_format="pcm", seed=1))
    assert whole > seconds(ask(voice, "First part.", response_format="pcm", seed=1)) + 0.8


# audio ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("stream", [None, False])
@pytest.mark.parametrize("speed", [0.5, 1, 2])
def test_six_formats_streamed_and_whole_at_three_speeds(tones, format_, stream, speed):
    for text in ("Hi!", "One sentence of some length.", "First one here. And a second one."):
        answer = ask(tones, text, response_format=format_, stream=stream, speed=speed)
        pcm = ask(tones, text, response_format="pcm")
        assert answer.headers["content-type"] == TYPES[format_]
        if format_ in MAGIC:
            assert answer.content.startswith(MAGIC[format_])
        assert seconds(answer) == pytest.approx(seconds(pcm) / speed, abs=0.08)
        if stream is False:
            assert int(answer.headers["content-length"]) == len(answer.content)
        samples, rate = (
            (pcm_floats(answer.content), 24000) if format_ == "pcm" else decode(answer.content)
        )
        # The tail is intact: the tone still sounds shortly before the end.
        tail = samples[-round(0.18 * rate) : -round(0.1 * rate)]
        assert np.abs(tail).max() > 0.05


def test_the_data_chunk_is_the_last_and_its_size_is_right(tones):
    whole = ask(tones, "A test.", response_format="wav", stream=False).content
    assert whole[36:40] == b"data"
    (size,) = struct.unpack_from("<I", whole, 40)
    assert 44 + size == len(whole)
    streamed = ask(tones, "A test.", response_format="wav").content
    assert struct.unpack_from("<I", streamed, 40)[0] == 0xFFFFFFFF


def test_opus_loses_nothing_at_its_end(voice):
    text = "It was built long ago, and that word is Constantinople."
    opus = ask(voice, text, response_format="opus", seed=5)
    pcm = ask(voice, text, response_format="pcm", seed=5)
    assert seconds(opus) == pytest.approx(seconds(pcm), abs=0.08)
    last_page = opus.content.rindex(b"OggS")
    assert opus.content[last_page + 5] & 4


def test_flac_is_exact_and_knows_its_length_when_whole(tones):
    import soundfile

    pcm = ask(tones, "Exactly this.", response_format="pcm").content
    whole = ask(tones, "Exactly this.", response_format="flac", stream=False).content
    samples, rate = soundfile.read(io.BytesIO(whole), dtype="int16")
    assert rate == 24000
    assert samples.tobytes() == pcm


def test_pcm_is_even_in_every_chunk(tones):
    for text in ("Hi.", "Something a little longer than that."):
        body = {"input": text, "response_format": "pcm"}
        url = f"{tones.address}/v1/audio/speech"
        with httpx.stream("POST", url, json=body) as answer:
            total = sum(map(len, answer.iter_raw()))
        assert total % 2 == 0


@pytest.mark.parametrize("body", [{}, {"response_format": None}])
def test_mp3_is_what_one_gets_without_asking(tones, body):
    answer = ask(tones, "Hi.", **body)
    assert answer.headers["content-type"] == "audio/mpeg"
    assert answer.content.startswith(MAGIC["mp3"])


def test_two_mp3_answers_joined_decode_to_the_sum(tones):
    first = ask(tones, "The first of two.", response_format="mp3").content
    second = ask(tones, "And here the second.", response_format="mp3").content
    lengths = [len(decode(data)[0]) for data in (first, second, first + second)]
    assert lengths[2] == pytest.approx(lengths[0] + lengths[1], abs=1200)
    assert (first + second).count(b"ID3") <= 2


@pytest.mark.parametrize("silence_s", [0.125, 0.3, 0.46])
def test_audio_that_begins_with_silence_is_heard_at_once(silence_s):
    script = {"x y": [Emit.silence(silence_s), Emit.tone(0.5)]}
    with running(ScriptedEngine(script)) as server:
        samples = pcm_floats(ask(server, "x y", response_format="pcm").content)
    assert np.argmax(np.abs(samples) > 0.02) / 24000 < 0.04


# shape ----------------------------------------------------------------------------------------


def test_listings_without_a_key_though_one_is_set():
    with running(ScriptedEngine(), api_key="k") as server:
        voices = httpx.get(f"{server.address}/v1/audio/voices").json()["voices"]
        models = httpx.get(f"{server.address}/v1/audio/models").json()["models"]
        for entry in (*voices, *models):
            assert entry["id"]
            assert entry["name"]
        assert httpx.get(f"{server.address}/v1/models").status_code == 200
        assert httpx.get(f"{server.address}/v1/models/tts-1").status_code == 200


def test_voices_filtered_by_model(tones):
    assert httpx.get(f"{tones.address}/v1/audio/voices?model=tts-1").status_code == 200
    assert httpx.get(f"{tones.address}/v1/audio/voices?model=nope").status_code == 404


def test_object_voices(tones):
    assert ask(tones, "Hi.", voice={"id": "tone", "name": "x"}).status_code == 200
    answer = ask(tones, "Hi.", voice={"name": "x"})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "voice"


def test_pcm_of_an_engine_that_fails_first_has_the_true_status():
    with running(ScriptedEngine({"x": [Fail(EngineFailure("gone"))]})) as server:
        answer = ask(server, "x", response_format="pcm")
        assert answer.status_code == 502
        assert answer.json()["error"]["message"] == "gone"


def test_sixteen_texts_at_once_stay_apart(tones):
    """Here against the queue's default of 8 waiting: those refused say when to come back."""
    import concurrent.futures

    from phonate.engine.scripted import frequency_of

    texts = [f"Text number {i}." for i in range(16)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda t: ask(tones, t, response_format="pcm"), texts))
    for text, answer in zip(texts, answers, strict=True):
        if answer.status_code == 503:
            assert int(answer.headers["retry-after"]) >= 1
        else:
            hz = loudest_hz(pcm_floats(answer.content), 24000)
            assert hz == pytest.approx(frequency_of(text), abs=4)
