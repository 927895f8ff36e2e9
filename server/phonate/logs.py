"""Where log lines go, what they look like, and what must never be in them."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections import deque
from contextvars import ContextVar
from typing import Any

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""Of the request that the code runs for, in whatever task or thread. The edges set it."""

_private: ContextVar[deque[str] | None] = ContextVar("private", default=None)
"""What that request wants spoken: no business of a log, whoever writes it."""

_QUOTE = 12
"""So many characters of a text in a row are a quotation of it."""

_WITHHELD = "(withheld: it quotes the text of a request; --log-level debug shows it)"

_SECRETS = (
    (re.compile(r"(api_key=)[^&\s\"']+", re.IGNORECASE), r"\1***"),
    (re.compile(r"(authorization: *\w+ ).+", re.IGNORECASE), r"\1***"),
    (re.compile(r"(bearer\.)[\w-]+", re.IGNORECASE), r"\1***"),
)

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class Redact(logging.Filter):
    """The web server logs whole request lines and, at debug level, headers; keys are in both."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if message.startswith("Traceback") and "phonate.errors.SetupError: " in message:
            return False  # A start that failed: the command says why, in one line.
        clean = message
        for pattern, instead in _SECRETS:
            clean = pattern.sub(instead, clean)
        if clean != message:
            record.msg, record.args = clean, ()
        return True


class OfRequest(logging.Filter):
    """Every record knows its request."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not getattr(record, "request_id", None):
            record.request_id = request_id.get()
        return True


class Discreet(logging.Filter):
    """Keeps what people have spoken out of the log. Our own lines never contain it; what others
    write, and the words of an unexpected exception, are looked at."""

    def filter(self, record: logging.LogRecord) -> bool:
        texts = _private.get()
        if not texts:
            return True
        if record.exc_info and record.exc_info[0] is not None:
            record.exc_text = _without(texts, logging.Formatter().formatException(record.exc_info))
        if not record.name.startswith("phonate"):
            message = record.getMessage()
            clean = _without(texts, message)
            if clean != message:
                record.msg, record.args = clean, ()
        return True


def begin_request(id: str) -> None:
    """What is logged from here on, in this task and those it starts, belongs to `id`."""
    request_id.set(id)
    _private.set(deque(maxlen=32))


def keep_private(text: str) -> None:
    """Nobody shall log `text` above debug level."""
    texts = _private.get()
    if texts is not None and text.strip():
        texts.append(text)


def _without(texts: deque[str], message: str) -> str:
    lines = message.split("\n")
    return "\n".join(_stub(x) if any(_quotes(t, x) for t in texts) else x for x in lines)


def _stub(line: str) -> str:
    """What is left of a line: the kind of the exception, where it is one's last."""
    kind = re.match(r"[A-Za-z_][\w.]*: ", line)
    return (kind[0] if kind else "") + _WITHHELD


def _quotes(text: str, line: str) -> bool:
    text = text.strip()
    if len(text) <= _QUOTE:
        return text in line
    return any(line[i : i + _QUOTE] in text for i in range(len(line) - _QUOTE + 1))


class TextLines(logging.Formatter):
    """One line, with the request's id at its end unless it is in the message already."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        id = getattr(record, "request_id", "")
        return f"{line} [{id}]" if id and id not in line else line


class JsonLines(logging.Formatter):
    """One object a line; what a call passed as `extra` becomes fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((k, v) for k, v in vars(record).items() if k not in _STANDARD)
        if not line.get("request_id"):
            line.pop("request_id", None)
        if record.exc_info:
            line["exception"] = record.exc_text or self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def keep_secrets() -> None:
    """Put `Redact` on the web server's logger, whoever handles its records."""
    logger = logging.getLogger("uvicorn.error")
    if not any(isinstance(known, Redact) for known in logger.filters):
        logger.addFilter(Redact())


def set_up(level: str, format_: str) -> None:
    """Log to stderr, for a process of our own."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if format_ == "json" else TextLines())
    handler.addFilter(OfRequest())
    if level != "debug":
        handler.addFilter(Discreet())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Their every step at debug level would bury ours.
    for name in ("httpx", "httpcore", "huggingface_hub", "asyncio"):
        logging.getLogger(name).setLevel(max(logging.INFO, logging.getLogger().level))
