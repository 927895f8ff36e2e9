import pytest

from phonate.speech.budget import estimate_s, token_budget


@pytest.mark.parametrize("text", ["1次", "1。", "Huh?", "Hm.", "OK", "はい", "네", "Да."])
def test_short_texts_get_less_than_three_seconds(text):
    assert token_budget(text, 12.5) / 12.5 < 3


@pytest.mark.parametrize(
    ("text", "spoken_s"),
    [
        ("The quick brown fox jumps over the lazy dog near the river bank.", 4.2),
        ("我们明天早上八点在火车站门口见面。", 4.0),
        ("こんにちは、今日はとてもいい天気ですね。", 3.6),
        ("Call 0171 2345678 before noon.", 6.0),
    ],
)
def test_the_budget_leaves_room_for_slow_readers(text, spoken_s):
    assert spoken_s * 1.8 < token_budget(text, 12.5) / 12.5 < spoken_s * 5


def test_the_estimate_grows_with_the_text_and_ignores_what_is_not_said():
    assert estimate_s("word " * 200) == pytest.approx(200 * estimate_s("word "))
    assert estimate_s("\u200b🎉\U0001f600" * 10) < 3
    assert token_budget("", 12.5) > 0
