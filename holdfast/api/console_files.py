"""Static files of the console, and the headers of all its responses."""

import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

StaticFile = tuple[bytes, Mapping[str, str]]
"""Content and headers."""

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


def static_files() -> dict[str, StaticFile]:
    """``path below /console/static -> file`` of the pages, and ``index.html``.

    The path contains a digest of all files: browsers never ask again for one that they have.
    """
    folder = resources.files("holdfast.api") / "static"
    contents = {one.name: one.read_bytes() for one in folder.iterdir()}
    version = _digest(b"".join(contents[name] for name in sorted(contents)))
    index = contents.pop("index.html").replace(b"/static/", f"/static/{version}/".encode())
    files = {
        f"{version}/{name}": _file(name, content, "public, max-age=31536000, immutable")
        for name, content in contents.items()
    }
    return {**files, "index.html": _file("index.html", index, "no-cache")}


def _file(name: str, content: bytes, cached: str) -> StaticFile:
    """Static file: content and headers."""
    return (
        content,
        {
            **HEADERS,
            "content-type": _TYPES[name[name.rindex(".") :]],
            "cache-control": cached,
            "etag": f'"{_digest(content)}"',
        },
    )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:20]


async def served_file(file: StaticFile, request: Request) -> Response:
    """Serve a file, unless the browser has it."""
    content, headers = file
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers)


async def one_of(files: Mapping[str, StaticFile], request: Request) -> Response:
    """Serve the file that a path names."""
    file = files.get(request.path_params["path"])
    if file is None:
        return JSONResponse({"message": "file not found"}, status_code=404, headers=HEADERS)
    return await served_file(file, request)
