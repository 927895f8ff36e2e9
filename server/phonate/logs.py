"""Where log lines go, what they look like, and what must never be in them."""

from __future__ import annotations

import json
import logging
import re
import sys
from typing import Any

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
        clean = message
        for pattern, instead in _SECRETS:
            clean = pattern.sub(instead, clean)
        if clean != message:
            record.msg, record.args = clean, ()
        return True


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
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def keep_secrets() -> None:
    """Put `Redact` on the web server's logger, whoever handles its records."""
    logger = logging.getLogger("uvicorn.error")
    if not any(isinstance(known, Redact) for known in logger.filters):
        logger.addFilter(Redact())


def set_up(level: str, format_: str) -> None:
    """Log to stderr, for a process of our own."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if format_ == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Their every step at debug level would bury ours.
    for name in ("httpx", "httpcore", "huggingface_hub", "asyncio"):
        logging.getLogger(name).setLevel(max(logging.INFO, logging.getLogger().level))
