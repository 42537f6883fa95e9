"""The files that the page loads: a table that is made at the start, so that no request names a path."""

from __future__ import annotations

import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from leadline.reading.page import vendor
from leadline.web.server.answers import refuse

__all__ = ["StaticFiles"]

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
_MISSING = "The pages of the lab are missing from this installation; install Leadline again."


class StaticFiles:
    """The pages of the lab by their names, and the chart library of the report under `vendor/`."""

    def __init__(self, pages: Path) -> None:
        self._files = _table(pages) | {
            f"vendor/{name}": path for name, path in _table(Path(vendor.__file__).parent).items()
        }

    async def index(self, request: Request) -> Response:
        """Answer with the page."""
        if "index.html" not in self._files:
            raise refuse(503, _MISSING)
        return self._answer("index.html", request)

    async def file(self, request: Request) -> Response:
        """Answer with one of its files."""
        name = request.path_params["name"]
        if name not in self._files:
            raise refuse(404, "The lab has no such file.")
        return self._answer(name, request)

    def _answer(self, name: str, request: Request) -> Response:
        path = self._files[name]
        content = path.read_bytes()  # some kB, which the system holds in memory
        mark = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        headers = {"cache-control": "no-cache", "etag": mark}
        if request.headers.get("if-none-match") == mark:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=TYPES[path.suffix])


def _table(folder: Path) -> dict[str, Path]:
    return {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.suffix in TYPES and path.is_file() and not path.is_symlink()
    }
