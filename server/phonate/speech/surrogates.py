"""Halves of a character that a client cut in two.

JavaScript counts UTF-16 units, so a piece of text may end with the first half of an emoji and the
next one begin with the second. JSON carries both halves as escapes, and Python keeps them apart.
"""

from __future__ import annotations


class SurrogateJoiner:
    r"""feed() text, get text without surrogates; half a character waits for its other half.

    >>> joiner = SurrogateJoiner()
    >>> joiner.feed("ok \ud83d"), joiner.feed("\ude00!"), joiner.finish()
    ('ok ', '😀!', '')
    """

    def __init__(self) -> None:
        self._half = ""

    def feed(self, text: str) -> str:
        """Halves that stay alone become U+FFFD."""
        text = self._half + text
        self._half = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._half = text[-1]
            text = text[:-1]
        if text.isascii():
            return text
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def finish(self) -> str:
        """A half that never met the other one, as U+FFFD."""
        half, self._half = self._half, ""
        return "\N{REPLACEMENT CHARACTER}" if half else ""
