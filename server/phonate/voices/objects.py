"""The objects below a prefix of a bucket: the only module that knows obstore.

Credentials, region and endpoint come from the usual AWS variables or the machine's role, as obstore
finds them; nothing of them is in a message. What goes wrong becomes one of the four exceptions
here, with a short reason that may be shown to clients.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from phonate.errors import SetupError
from phonate.voices.manifest import Damaged
from phonate.voices.place import Bucket

if TYPE_CHECKING:
    from obstore.store import S3Store

TIMEOUT_S = 5.0
"""Of one request, and of all its repetitions together: who uploads a voice waits for several."""
CONNECT = timedelta(seconds=2)
MAX_RETRIES = 2

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")


class Unreachable(Exception):
    """No answer, or none that helps: try again later. The text is the reason."""


class Denied(Unreachable):
    """The credentials may not do this."""


class Taken(Exception):
    """There is an object under this key already."""


class Missing(Exception):
    """There is no object under this key."""


@dataclass(frozen=True, slots=True)
class Listed:
    key: str
    n_bytes: int
    e_tag: str
    changed_at: float
    """Unix seconds, by the bucket's clock."""


class Objects:
    """Blocking; any thread. Keys are below the bucket's prefix."""

    def __init__(self, bucket: Bucket) -> None:
        """Raises SetupError without the extra, or when the environment makes no client."""
        try:
            from obstore.exceptions import BaseError
            from obstore.store import S3Store
        except ImportError as error:
            raise SetupError(
                f"--voice-dir {bucket}: voices in a bucket need one more package: "
                "pip install 'phonate[s3]'"
            ) from error
        self.endpoint = endpoint()
        options: Any = {"timeout": timedelta(seconds=TIMEOUT_S), "connect_timeout": CONNECT}
        if self.endpoint.startswith("http://"):
            options["allow_http"] = True
        retries: Any = {"max_retries": MAX_RETRIES, "retry_timeout": timedelta(seconds=TIMEOUT_S)}
        given: Any = {"endpoint": self.endpoint} if self.endpoint else {}
        try:
            self._store: S3Store = S3Store(
                bucket.name,
                prefix=bucket.prefix or None,
                client_options=options,
                retry_config=retries,
                disable_bulk_delete=True,
                **given,
            )
        except (BaseError, ValueError) as error:
            raise SetupError(f"--voice-dir {bucket}: the AWS_* variables do not fit.") from error

    def list(self, folder: str) -> list[Listed]:
        """Everything below `folder/`."""
        try:
            return [
                Listed(item["path"], item["size"], _tag(item), item["last_modified"].timestamp())
                for batch in self._store.list(folder)
                for item in batch
            ]
        except Exception as error:
            raise _translated(error) from error

    def get(self, key: str, *, max_bytes: int) -> tuple[bytes, str]:
        """Its bytes and its ETag. Raises Missing; Damaged for more than `max_bytes`."""
        try:
            answer = self._store.get(key)
            if answer.meta["size"] > max_bytes:
                raise Damaged(f"an object has {answer.meta['size']} bytes, above {max_bytes}")
            return bytes(answer.bytes()), _tag(answer.meta)
        except FileNotFoundError as error:
            raise _absent(error) from error
        except Damaged:
            raise
        except Exception as error:
            raise _translated(error) from error

    def create(self, key: str, data: bytes) -> str:
        """The conditional write: only where nothing is. Returns the ETag; raises Taken."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            return _tag(self._store.put(key, data, mode="create", use_multipart=False))
        except (AlreadyExistsError, PreconditionError) as error:
            raise Taken(key) from error
        except Exception as error:
            raise _translated(error) from error

    def put(self, key: str, data: bytes) -> None:
        try:
            self._store.put(key, data, use_multipart=False)
        except Exception as error:
            raise _translated(error) from error

    def delete(self, keys: Iterable[str]) -> None:
        """What is not there is fine. One by one: not every S3 knows the request for many."""
        for key in keys:
            try:
                self._store.delete(key)
            except FileNotFoundError:
                continue
            except Exception as error:
                raise _translated(error) from error


def endpoint() -> str:
    """Another S3 than Amazon's; empty for Amazon's."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
        if found := os.environ.get(name):
            return found.rstrip("/")
    return ""


def _tag(answer: Any) -> str:
    return str(answer["e_tag"] or "").strip('"')


def _absent(error: Exception) -> Exception:
    return _translated(error) if "NoSuchBucket" in str(error) else Missing()


def _translated(error: Exception) -> Unreachable:
    """The library's text names addresses and quotes answers: only what is known to be harmless
    goes on."""
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    if code is not None:
        reason = code[1]
    elif status is not None:
        reason = f"it answers {status[1]}"
    else:
        reason = "it does not answer"
    denied = status is not None and status[1] in ("401", "403")
    return Denied(reason) if denied else Unreachable(reason)
