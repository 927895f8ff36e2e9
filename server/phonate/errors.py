"""Every failure that phonate tells somebody about, as one tree.

    PhonateError
    |- SetupError                exit code 1, one line on stderr; never reaches a client
    |- InternalError        500  server_error, code internal_error: a bug; the log has the rest
    |- StorageError         500  server_error, code storage_error: disk full, read-only, failing
    |- InvalidRequest       400  invalid_request_error: a field is wrong
    |  |- UnsupportedLanguage    code unsupported_language
    |  |- VoiceNotFound          code voice_not_found, names the voices there are
    |  `- UnsupportedOperation   unsupported_operation: fine as a request, not for this engine
    |- Unauthorized         401  authentication_error
    |- NotFound             404  not_found_error
    |  `- ModelNotFound          code model_not_found
    |- RequestTimeout       408  the client takes too long to send its request
    |- Conflict             409
    |- TooLarge             413
    |- UnsupportedMedia     415
    |- RateLimited          429  + Retry-After
    |- HeadTooLarge         431
    |- Cancelled            499  the client or an operator stopped it; logged, never sent
    |- EngineFailure        502  server_error: the engine gave up
    |  |- EngineDied             code engine_died: its process did (--isolate-engine)
    |  `- OutputError            output_error: it answered, with nothing a person can hear
    |- Busy                 503  server_busy + Retry-After
    |  `- NotReady               starting up or draining
    `- Timeout              504  timeout_error

Each border translates once: native status -> these, in `engine/qwen`; these -> the OpenAI
envelope, in `api/envelope.py`; these -> a WebSocket event, in the session. A message says what was
wrong, what was expected, and what to do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar


class PhonateError(Exception):
    """Base of the tree. `param` names the field at fault; `code` is for programs."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: str | None = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        if code is not None:
            self.code = code


class SetupError(PhonateError):
    """The command cannot start: a wrong option, a missing file, a port in use."""


class InternalError(PhonateError):
    """Something that nobody foresaw, without its details: those are in the log."""

    code = "internal_error"

    def __init__(self, request_id: str) -> None:
        super().__init__(
            f"An unexpected error. It is in the server's log under request {request_id}."
        )


class StorageError(PhonateError):
    """Something could not be saved or removed for good; nothing half-done is served."""

    code = "storage_error"


class InvalidRequest(PhonateError):
    status = 400
    type = "invalid_request_error"


class UnsupportedLanguage(InvalidRequest):
    code = "unsupported_language"


class VoiceNotFound(InvalidRequest):
    code = "voice_not_found"

    def __init__(self, name: str, available: Iterable[str], *, param: str = "voice") -> None:
        known = sorted(available)
        shown = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
        super().__init__(
            f"There is no voice {name!r}. Available: {shown or 'none'}. "
            "GET /v1/audio/voices lists them.",
            param=param,
        )


class UnsupportedOperation(InvalidRequest):
    type = "unsupported_operation"
    code = "unsupported_operation"


class Unauthorized(PhonateError):
    status = 401
    type = "authentication_error"
    code = "invalid_api_key"


class NotFound(PhonateError):
    status = 404
    type = "not_found_error"
    code = "not_found"


class ModelNotFound(NotFound):
    code = "model_not_found"


class RequestTimeout(PhonateError):
    status = 408
    type = "invalid_request_error"
    code = "request_timeout"


class Conflict(PhonateError):
    status = 409
    type = "invalid_request_error"
    code = "conflict"


class TooLarge(PhonateError):
    status = 413
    type = "invalid_request_error"
    code = "too_large"


class UnsupportedMedia(PhonateError):
    status = 415
    type = "invalid_request_error"
    code = "unsupported_media_type"


class HeadTooLarge(PhonateError):
    status = 431
    type = "invalid_request_error"
    code = "head_too_large"


class _RetryLater(PhonateError):
    """Shared by the errors that carry a Retry-After, in whole seconds, at least 1."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = max(1, math.ceil(retry_after_s))


class RateLimited(_RetryLater):
    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"


class Cancelled(PhonateError):
    """A synthesis that was told to stop. `reason` is a short word for logs and metrics."""

    status = 499
    type = "cancelled"
    code = "cancelled"

    def __init__(self, reason: str = "cancelled") -> None:
        super().__init__(f"The synthesis was cancelled ({reason}).")
        self.reason = reason


class EngineFailure(PhonateError):
    status = 502
    type = "server_error"
    code = "engine_failure"


class EngineDied(EngineFailure):
    """The process that the engine lived in is gone; a new one is being started."""

    code = "engine_died"


class OutputError(EngineFailure):
    type = "output_error"
    code = "output_error"


class Busy(_RetryLater):
    status = 503
    type = "server_busy"
    code = "server_busy"


class NotReady(Busy):
    code = "not_ready"


class Timeout(PhonateError):
    status = 504
    type = "timeout_error"
    code = "timeout"
