"""GET /: the page, and the files it is made of. They are static, small, and read once.

Relative addresses only, so that the page works behind any path prefix. The policy allows what these
files need and nothing else: no inline script or style, no other origin, no frame around it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources

from fastapi import APIRouter, Request
from starlette.responses import Response

from phonate.errors import NotFound

router = APIRouter(include_in_schema=False)

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",  # fetch, and the WebSocket of the same origin
        "media-src 'self' blob:",  # a clip is heard before it is sent
        "form-action 'none'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",  # nothing here makes markup out of text
    )
)

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",  # frame-ancestors, for browsers that do not know it
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Asked for every time and answered 304: an upgrade is seen at once.
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    type: str
    etag: str


def _load() -> dict[str, _File]:
    """Every file of the page by name; another suffix is none of them."""
    found = {}
    for entry in resources.files("phonate").joinpath("page").iterdir():
        type_ = _TYPES.get(entry.name.rpartition(".")[2])
        if type_ is not None:
            content = entry.read_bytes()
            found[entry.name] = _File(
                content, type_, f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            )
    return found


FILES = _load()


@router.api_route("/", methods=["GET", "HEAD"])
async def page(request: Request) -> Response:
    """The page itself."""
    return _answer(FILES["index.html"], request)


@router.api_route("/page/{name}", methods=["GET", "HEAD"])
async def page_file(name: str, request: Request) -> Response:
    """A style sheet, a module, a picture."""
    file = FILES.get(name)
    if file is None:
        raise NotFound("The page has no file of this name.")
    return _answer(file, request)


def _answer(file: _File, request: Request) -> Response:
    headers = {**_HEADERS, "ETag": file.etag}
    if _has(request.headers.get("if-none-match", ""), file.etag):
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.type, headers=headers)


def _has(if_none_match: str, etag: str) -> bool:
    """Whether the client has this version. A proxy that compresses makes a tag weak (W/)."""
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in tags or "*" in tags
